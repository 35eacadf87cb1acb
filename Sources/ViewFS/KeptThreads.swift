import FUSEKit
import Glibc
import LinuxFS

/// Runs short tasks that may hang, each on a thread that has nothing else to do meanwhile. Threads are kept for a while: a task that comes often
/// does not pay for making one. Tasks act as nobody in particular: a thread's identity is the daemon's.
///
/// Locking: its own, rank 3, held for a moment.
final class KeptThreads: Sendable {
    private struct State {
        var tasks: [@Sendable () -> Void] = []
        /// Threads that wait, and of which nobody has taken one for a task.
        var idle = 0
    }

    private let state = Lock(State())
    private let call = Semaphore()
    /// So long a thread waits for the next task before it ends.
    private static let patience: Int64 = 10_000_000_000

    /// Has `task` run at once, by a thread that waits or by a new one; without one it is done here and now.
    func run(_ task: @escaping @Sendable () -> Void) {
        let isTaken = state.withLock { state -> Bool in
            guard state.idle > 0 else { return false }
            state.idle -= 1
            state.tasks.append(task)
            return true
        }
        if isTaken {
            call.post()
            return
        }
        do throws(Errno) {
            // Of the thread that asks it would inherit whom that acts for.
            try WorkerThread.start("grantfs-task") { [self] in
                Identity.resetOnThisThread()
                task()
                while let next = next() { next() }
            }.detach()
        } catch {
            task()
        }
    }

    /// The next task for a thread that has none; nil when there was none for a while.
    private func next() -> (@Sendable () -> Void)? {
        state.withLock { $0.idle += 1 }
        if !call.wait(until: Clock.monotonic + Self.patience) {
            let isIdle = state.withLock { state -> Bool in
                guard state.idle > 0 else { return false }
                state.idle -= 1
                return true
            }
            if isIdle { return nil }
            // Somebody has just taken a thread for a task, and is about to call.
            call.wait()
        }
        return state.withLock { $0.tasks.removeFirst() }
    }
}
