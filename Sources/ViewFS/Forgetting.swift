import Coordinator
import FUSEKit
import Glibc
import LinuxFS
import Synchronization
import ViewTree

/// Makes the kernel forget some nodes of a scope. An invalidation waits for whoever has a page locked, which a program can have happen for as long as it
/// likes, so one that waits is left to its thread and costs no other node.
struct Forgetting {
    let view: ViewFS
    let gate: ScopeID
    let nodes: Set<UInt64>

    /// Without any node done for so long, another thread goes on: microseconds. And so many there are at the most.
    private static let patience: Int64 = 20_000_000
    private static let threads = 32
    /// Without any done for so long, and none left to begin, what is left is left.
    private static let lastPatience: Int64 = 2_000_000_000
    private static let stragglingMicroseconds: UInt32 = 5_000

    /// Makes the kernel write back what it holds of the files, and keep `write` from being acknowledged without a question.
    func writeBack() {
        guard let notifier = view.session?.notifier else { return }
        let writable = nodes.filter { isWritable($0) }
        for node in writable { _ = notifier.forgetAttributes(NodeID(node)) }
        let counter = view.coordinator.gate(gate)
        for round in 0..<8 where !writable.isEmpty {
            // Who was let in before may still be on the way to the cache.
            if view.policy.writeBack, round > 0 { usleep(Self.stragglingMicroseconds) }
            let before = counter.pointee.flushedBytes.load(ordering: .relaxed)
            forgetData(Array(writable))
            if counter.pointee.flushedBytes.load(ordering: .relaxed) == before, round > 0 || !view.policy.writeBack { break }
        }
    }

    /// Attributes, those of directories first; then data, that of files open for writing once more, because the kernel does not look whether its own
    /// invalidation succeeded.
    func forget() {
        guard let notifier = view.session?.notifier else { return }
        let directories = nodes.filter { view.tree.nodes.find($0)?.pointee.type == S_IFDIR }
        for node in directories { _ = notifier.forgetAttributes(NodeID(node)) }
        for node in nodes where !directories.contains(node) { _ = notifier.forgetAttributes(NodeID(node)) }
        forgetData(Array(nodes))
        forgetData(nodes.filter { isWritable($0) })
    }

    private func isWritable(_ id: UInt64) -> Bool { (view.tree.nodes.find(id)?.pointee.writers.load(ordering: .relaxed) ?? 0) > 0 }

    private final class Work: Sendable {
        let ids: [UInt64]
        let next = Atomic<Int>(0)
        let done = Atomic<Int>(0)
        init(_ ids: [UInt64]) { self.ids = ids }
    }

    private func forgetData(_ ids: [UInt64]) {
        guard !ids.isEmpty, let notifier = view.session?.notifier else { return }
        let work = Work(ids)
        let body: @Sendable () -> Void = {
            while true {
                let place = work.next.wrappingAdd(1, ordering: .relaxed).oldValue
                guard place < work.ids.count else { return }
                _ = notifier.forgetData(NodeID(work.ids[place]))
                work.done.wrappingAdd(1, ordering: .releasing)
            }
        }
        var threads = 1
        _ = BackgroundTask(body)
        var (seen, since) = (0, Clock.monotonic)
        while true {
            let done = work.done.load(ordering: .acquiring)
            if done == ids.count { return }
            let now = Clock.monotonic
            if done != seen { (seen, since) = (done, now) }
            let hasMore = work.next.load(ordering: .relaxed) < ids.count
            if hasMore, threads < Self.threads, now - since > Self.patience {
                threads += 1
                _ = BackgroundTask(body)
                since = now
            } else if now - since > Self.lastPatience {
                return
            }
            usleep(100)
        }
    }
}
