import Glibc
import GrantSystem

/// Runs short tasks that may hang, each on a thread of its own.
///
/// Threads are kept for a while, so that a frequent task does not pay for making one. Tasks act
/// with the daemon's own identity.
///
/// Locking: its own, rank 3, held for a moment.
package final class ThreadPool: Sendable {
    private struct State {
        var tasks: [@Sendable () -> Void] = []
        /// Threads that wait and have not been taken for a task.
        var idle = 0
        /// The running and the queued tasks of each share.
        var shares: [UInt64: Share] = [:]
    }

    private struct Share {
        var running = 0
        var queue: [@Sendable () -> Void] = []
        /// The first of the queue that has not been run.
        var first = 0
    }

    private let state = Lock(State())

    package init() {}

    private let wakeup = Semaphore()
    /// How long a thread waits for the next task before it ends.
    private static let idleTimeout: Int64 = 10_000_000_000
    /// The limit of tasks of one share that run at once.
    package static let shareLimit = 32

    /// Runs a task as `run` does, but only `shareLimit` tasks of one share at once.
    ///
    /// Later tasks of the share follow in order. So a share whose tasks hang takes no threads from
    /// other shares.
    package func run(for share: UInt64, _ task: @escaping @Sendable () -> Void) {
        let mayRun = state.withLock { state -> Bool in
            let running = state.shares[share]?.running ?? 0
            if running < Self.shareLimit {
                state.shares[share, default: Share()].running += 1
            } else {
                state.shares[share]?.queue.append(task)
            }
            return running < Self.shareLimit
        }
        guard mayRun else { return }
        run { [self] in
            task()
            while let next = nextTask(of: share) { next() }
        }
    }

    private func nextTask(of share: UInt64) -> (@Sendable () -> Void)? {
        state.withLock { state in
            guard let place = state.shares.index(forKey: share) else { return nil }
            let first = state.shares.values[place].first
            if first == state.shares.values[place].queue.count {
                (state.shares.values[place].queue, state.shares.values[place].first) = ([], 0)
                state.shares.values[place].running -= 1
                if state.shares.values[place].running == 0 { state.shares.remove(at: place) }
                return nil
            }
            state.shares.values[place].first += 1
            return state.shares.values[place].queue[first]
        }
    }

    /// Runs `task` immediately, by a waiting thread or by a new one.
    ///
    /// If no thread can be made, it runs on the caller's thread.
    package func run(_ task: @escaping @Sendable () -> Void) {
        let isTaken = state.withLock { state -> Bool in
            guard state.idle > 0 else { return false }
            state.idle -= 1
            state.tasks.append(task)
            return true
        }
        if isTaken {
            wakeup.post()
            return
        }
        do throws(Errno) {
            // A new thread inherits the identity of the thread that starts it.
            try WorkerThread.start("grantfs-task") { [self] in
                Identity.resetOnThisThread()
                task()
                while let next = next() { next() }
            }.detach()
        } catch {
            task()
        }
    }

    /// The next task for a thread that has none. Returns nil if there was none for a while.
    private func next() -> (@Sendable () -> Void)? {
        state.withLock { $0.idle += 1 }
        if !wakeup.wait(until: Clock.monotonic + Self.idleTimeout) {
            let isIdle = state.withLock { state -> Bool in
                guard state.idle > 0 else { return false }
                state.idle -= 1
                return true
            }
            if isIdle { return nil }
            // Another thread has taken this one for a task, and is about to wake it.
            wakeup.wait()
        }
        return state.withLock { $0.tasks.removeFirst() }
    }
}
