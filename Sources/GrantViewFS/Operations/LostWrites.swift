import GrantSystem
import Synchronization
import GrantViewTree

/// Files with write-back that failed beyond the largest offset of their filesystem.
///
/// Counted by scope. Each open file reports the loss once, by fsync(2) or close(2) with EFBIG, as
/// the kernel reports write errors (lib/errseq.c).
///
/// Locking: its own, held for a moment.
final class LostWrites: Sendable {
    private let counts = Lock(NodeValues<UInt32>())
    private let hasAny = Atomic<Bool>(false)

    /// Whether there ever was a lost write. The fast path.
    @inline(__always)
    var isAny: Bool { hasAny.load(ordering: .acquiring) }

    /// Counts one lost write of a node. `isKnown`: whether the kernel knows a node.
    func add(_ node: UInt64, in scope: UInt32, isKnown: (UInt64) -> Bool) {
        counts.withLock { $0.update(node, in: scope, default: 0, isKnown: isKnown) { $0 &+= 1 } }
        hasAny.store(true, ordering: .releasing)
    }

    /// Initializes a newly opened file, which does not report earlier losses.
    func begin(_ file: borrowing OpenFile) { file.reportedLosses.store(count(file.node, in: file.scope), ordering: .relaxed) }

    /// Whether there are losses that this file has not reported. Marks them as reported.
    func takeError(_ file: UnsafeMutablePointer<OpenFile>) -> Bool {
        let now = count(file.pointee.node, in: file.pointee.scope)
        return file.pointee.reportedLosses.exchange(now, ordering: .relaxed) != now
    }

    func handOver(to state: inout HandoverWriter) {
        let all = counts.withLock(\.all)
        state.put(UInt64(truncatingIfNeeded: all.count))
        for (scope, node, count) in all {
            state.put(scope)
            state.put(node)
            state.put(count)
        }
    }

    func takeOver(from state: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 16)) {
            let (scope, node, count): (UInt32, UInt64, UInt32) = (try state.take(), try state.take(), try state.take())
            counts.withLock { $0.update(node, in: scope, default: 0, isKnown: { _ in true }) { $0 = count } }
            hasAny.store(true, ordering: .releasing)
        }
    }

    /// Removes the counts of a scope.
    func forget(_ scope: UInt32) { counts.withLock { $0.remove(scope) } }

    private func count(_ node: UInt64, in scope: UInt32) -> UInt32 { counts.withLock { $0[node, in: scope] ?? 0 } }
}
