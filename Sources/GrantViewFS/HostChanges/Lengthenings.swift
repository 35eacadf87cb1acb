import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Notifies the kernel of larger files, in order with programs that truncate them meanwhile.
///
/// The host has made the files larger. The kernel never takes a smaller size from the daemon. So a
/// size that was read before a truncation must not reach it afterwards.
///
/// Locking: its own, rank 2, held for a moment and never while the kernel is notified.
final class Lengthenings: Sendable {
    private struct Lengthening {
        let node: UInt64
        let thread: pid_t
        var isSent = false
    }

    private let count = Atomic<Int>(0)
    private let underWay = Lock<[Lengthening]>([])

    /// Sends the size that `size` returns, unless the file is truncated in between.
    func lengthen(_ node: UInt64, to size: () -> off_t?, send: (off_t) -> Void) {
        let thread = clinux_gettid()
        count.add(1, ordering: .sequentiallyConsistent)
        underWay.withLock { $0.append(Lengthening(node: node, thread: thread)) }
        defer {
            underWay.withLock { $0.removeAll { $0.thread == thread } }
            count.subtract(1, ordering: .sequentiallyConsistent)
        }
        guard let size = size() else { return }
        let mayBeSent = underWay.withLock { lengthenings in
            guard let place = lengthenings.firstIndex(where: { $0.thread == thread }) else { return false }
            lengthenings[place].isSent = true
            return true
        }
        if mayBeSent { send(size) }
    }

    /// Stops sizes from before a truncation. Call it between truncating a file and the reply.
    ///
    /// Waits while such a size is being sent. It does not wait for a lock that the sender waits for
    /// in the kernel, which this truncation may hold. By then the kernel has taken the size
    /// (`Notifier.lengthen`).
    func settle(_ node: UInt64) {
        if count.load(ordering: .sequentiallyConsistent) == 0 { return }
        underWay.withLock { $0.removeAll { $0.node == node && !$0.isSent } }
        while let thread = underWay.withLock({ $0.first { $0.node == node && $0.isSent }?.thread }) {
            if StarvedThreads.waiting([thread]).isEmpty { return }
            usleep(50)
        }
    }
}
