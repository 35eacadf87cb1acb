import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Makes the kernel forget some nodes of a scope that goes on.
struct DepartureInvalidator {
    let view: ViewFS
    let gate: ScopeID
    let nodes: Set<UInt64>

    /// So many invalidations wait at the same time at the most.
    private static let threads = 32
    /// Without any done for so long, what is left is left.
    private static let lastPatience: Int64 = 2_000_000_000
    private static let stragglingMicroseconds: UInt32 = 5_000

    /// Makes the kernel write back what it holds of the files, and keep `write` from being acknowledged without a question.
    func writeBack() {
        guard let notifier = view.session?.notifier else { return }
        let writable = nodes.filter { isWritable($0) }
        for node in writable { _ = notifier.invalidateAttributes(NodeID(node)) }
        let counter = view.coordinator.gate(gate)
        for round in 0..<8 where !writable.isEmpty {
            // Who was let in before may still be on the way to the cache.
            if view.policy.writeBack, round > 0 { usleep(Self.stragglingMicroseconds) }
            let before = counter.pointee.flushedBytes.load(ordering: .relaxed)
            invalidateData(Array(writable))
            if counter.pointee.flushedBytes.load(ordering: .relaxed) == before, round > 0 || !view.policy.writeBack { break }
        }
    }

    /// Attributes, those of directories first; then data, that of files open for writing once more, because the kernel does not look whether its own
    /// invalidation succeeded.
    func forget() {
        guard let notifier = view.session?.notifier else { return }
        let directories = nodes.filter { view.tree.nodes.find($0)?.pointee.type == S_IFDIR }
        for node in directories { _ = notifier.invalidateAttributes(NodeID(node)) }
        for node in nodes where !directories.contains(node) { _ = notifier.invalidateAttributes(NodeID(node)) }
        invalidateData(Array(nodes))
        invalidateData(nodes.filter { isWritable($0) })
    }

    private func isWritable(_ id: UInt64) -> Bool { view.mayBeDirty(id) }

    /// As far as it can be forgotten: what waits for a program's lock is left to its thread. Files first, for which no program can make it wait.
    private func invalidateData(_ ids: [UInt64]) {
        guard !ids.isEmpty, let notifier = view.session?.notifier else { return }
        let invalidator = DataInvalidator(view, notifier, limit: Self.threads)
        invalidator.add(ids.filter { !view.isDirectory($0) })
        invalidator.add(ids.filter { view.isDirectory($0) })
        var (seen, since) = (invalidator.finished, Clock.monotonic)
        while !invalidator.isDone {
            usleep(100)
            invalidator.poll()
            let finished = invalidator.finished
            if finished != seen { (seen, since) = (finished, Clock.monotonic) }
            if Clock.monotonic - since > Self.lastPatience { return }
        }
    }
}
