import GrantSystem
import Synchronization

/// Threads that are made when a daemon begins, for work that must be done also when no other thread can be made: whoever may use up the process
/// numbers of a user or of a control group holds up no withdrawal with that.
///
/// Locking: its own, rank 3, held for a moment.
enum ReserveThreads {
    private struct Queue {
        var tasks: [@Sendable () -> Void] = []
        /// Those that may hang: only so many are done at the same time.
        var hanging: [@Sendable () -> Void] = []
        var hangingNow = 0
    }

    private static let queue = Lock(Queue())
    private static let wakeup = Semaphore()
    private static let count = Atomic<Int>(0)
    /// Of which as many may be in tasks that hang.
    private static let wanted = 4
    private static let hangingAtMost = 3
    /// As long as something waits in the queue it is tried again whether other threads can be made.
    private static let turn: Int64 = 200_000_000

    /// Makes them, once for a process.
    static func prepare() {
        while count.load(ordering: .relaxed) < wanted {
            guard let thread = try? WorkerThread.start("grantfs-reserve", serve) else { return }
            thread.detach()
            count.wrappingAdd(1, ordering: .relaxed)
        }
    }

    /// Has one of them do `task`, after what came before. `mayHang`: whether it may never end. False when there are none.
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
                // Threads may be had again, and this one stays free for the next.
                if let thread = try? WorkerThread.start("grantfs-task", task) { thread.detach() } else { task() }
            }
            while let task = queue.withLock({ $0.hanging.isEmpty ? nil : $0.hanging.removeFirst() }), place(task) {}
        }
    }

    /// Does what may hang, on another thread if that can be had. False when nobody may just now.
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
