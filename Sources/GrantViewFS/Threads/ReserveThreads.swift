import GrantSystem
import Synchronization

/// Threads made at daemon start, for work that cannot wait for a new thread.
///
/// So a program that uses up the process numbers of a user or a control group does not delay a
/// withdrawal.
///
/// Locking: its own, rank 3, held for a moment.
enum ReserveThreads {
    private struct Queue {
        var tasks: [@Sendable () -> Void] = []
        /// Tasks that may hang. Only `hangingAtMost` of them run at the same time.
        var hanging: [@Sendable () -> Void] = []
        var hangingNow = 0
    }

    private static let queue = Lock(Queue())
    private static let wakeup = Semaphore()
    private static let count = Atomic<Int>(0)
    /// The number of threads, and how many of them may run tasks that may hang.
    private static let wanted = 4
    private static let hangingAtMost = 3
    /// The interval, in nanoseconds, at which making other threads is retried while tasks are
    /// queued.
    private static let turn: Int64 = 200_000_000

    /// Makes the threads, once for a process.
    static func prepare() {
        while count.load(ordering: .relaxed) < wanted {
            guard let thread = try? WorkerThread.start("grantfs-reserve", serve) else { return }
            thread.detach()
            count.wrappingAdd(1, ordering: .relaxed)
        }
    }

    /// Lets one of the threads run `task`, after earlier tasks. Returns false if there are none.
    ///
    /// `mayHang`: whether the task may never end.
    static func run(mayHang: Bool = false, _ task: @escaping @Sendable () -> Void) -> Bool {
        guard count.load(ordering: .relaxed) > 0 else { return false }
        queue.withLock { queue in
            if mayHang { queue.hanging.append(task) } else { queue.tasks.append(task) }
        }
        wakeup.post()
        return true
    }

    private static func serve() {
        while true {
            if queue.withLock({ $0.hanging.isEmpty }) { wakeup.wait() } else { _ = wakeup.wait(until: Clock.monotonic + turn) }
            while let task = queue.withLock({ $0.tasks.isEmpty ? nil : $0.tasks.removeFirst() }) {
                // If a thread can be made again, this one stays free for the next task.
                if let thread = try? WorkerThread.start("grantfs-task", task) { thread.detach() } else { task() }
            }
            while let task = queue.withLock({ $0.hanging.isEmpty ? nil : $0.hanging.removeFirst() }), place(task) {}
        }
    }

    /// Runs a task that may hang, on another thread if one can be made.
    ///
    /// Returns false if the limit of such tasks is reached.
    private static func place(_ task: @escaping @Sendable () -> Void) -> Bool {
        if let thread = try? WorkerThread.start("grantfs-task", task) {
            thread.detach()
            return true
        }
        let isAllowed = queue.withLock { queue -> Bool in
            guard queue.hangingNow < hangingAtMost else {
                queue.hanging.insert(task, at: 0)
                return false
            }
            queue.hangingNow += 1
            return true
        }
        if !isAllowed { return false }
        task()
        queue.withLock { $0.hangingNow -= 1 }
        return true
    }
}
