import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Invalidates some nodes of a scope that stays open.
struct DepartureInvalidator {
    let view: ViewFS
    let scope: ScopeNodes
    let nodes: Set<UInt64>

    /// The limit of concurrent invalidations.
    private static let threads = 32
    /// Nanoseconds without progress after which the rest is left to its threads.
    private static let lastPatience: Int64 = 2_000_000_000
    private static let stragglingMicroseconds: UInt32 = 5_000

    /// Makes the kernel write back the files' dirty pages, and ask before further writes.
    func writeBack() {
        guard let notifier = view.session?.notifier else { return }
        let writable = nodes.filter { isWritable($0) }
        for node in writable { _ = notifier.invalidateAttributes(NodeID(node)) }
        let counter = view.coordinator.gate(ScopeID(rawValue: scope.scope))
        for round in 0..<8 where !writable.isEmpty {
            // A write admitted before may still be on its way to the cache.
            if view.policy.writeBack, round > 0 { usleep(Self.stragglingMicroseconds) }
            let before = counter.pointee.flushedBytes.load(ordering: .relaxed)
            invalidateData(Array(writable))
            if counter.pointee.flushedBytes.load(ordering: .relaxed) == before, round > 0 || !view.policy.writeBack { break }
        }
    }

    /// Invalidates attributes, directories before files, and then data.
    ///
    /// Data of files open for writing is invalidated again, because the kernel does not check
    /// whether its own invalidation succeeded. Returns whether all calls have ended.
    @discardableResult
    func forget() -> Bool {
        guard let notifier = view.session?.notifier else { return true }
        let directories = nodes.filter { view.tree.nodes.find($0)?.pointee.type == S_IFDIR }
        for node in directories { _ = notifier.invalidateAttributes(NodeID(node)) }
        for node in nodes where !directories.contains(node) { _ = notifier.invalidateAttributes(NodeID(node)) }
        let isDone = invalidateData(Array(nodes))
        return invalidateData(nodes.filter { isWritable($0) }, thenPinned: true) && isDone
    }

    private func isWritable(_ id: UInt64) -> Bool { view.mayBeDirty(id) }

    /// Invalidates data as far as possible. Files first, for which no program can block it.
    ///
    /// A call that blocks on a program's lock is left to its thread.
    @discardableResult
    private func invalidateData(_ ids: [UInt64], thenPinned: Bool = false) -> Bool {
        guard !ids.isEmpty || thenPinned, let notifier = view.session?.notifier else { return true }
        let invalidator = DataInvalidator(view, notifier, limit: Self.threads)
        invalidator.add(ids.filter { !view.isDirectory($0) })
        if thenPinned { view.addPinnedPages(Array(nodes), of: scope, notifier, invalidator) }
        invalidator.add(ids.filter { view.isDirectory($0) })
        var (seen, since) = (invalidator.finished, Clock.monotonic)
        while !invalidator.isDone {
            usleep(100)
            invalidator.poll()
            let finished = invalidator.finished
            if finished != seen { (seen, since) = (finished, Clock.monotonic) }
            if Clock.monotonic - since > Self.lastPatience { return false }
        }
        return true
    }
}
