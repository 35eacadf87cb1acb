import LinuxFS
import Synchronization

/// Threads that are made when a daemon begins, for work that must be done also when no other thread can be made: whoever may use up the process
/// numbers of a user or of a control group holds up no withdrawal with that.
///
/// Locking: its own, rank 3, held for a moment.
enum ReserveThreads {
    private static let tasks = Lock<[@Sendable () -> Void]>([])
    private static let call = Semaphore()
    private static let count = Atomic<Int>(0)
    /// A task may wait for a kernel's lock, so one is not enough.
    private static let wanted = 4

    /// Makes them, once for a process.
    static func prepare() {
        while count.load(ordering: .relaxed) < wanted {
            guard let thread = try? WorkerThread.start("grantfs-reserve", serve) else { return }
            thread.detach()
            count.wrappingAdd(1, ordering: .relaxed)
        }
    }

    /// Has one of them do `task`, after what came before. False when there are none.
    static func run(_ task: @escaping @Sendable () -> Void) -> Bool {
        guard count.load(ordering: .relaxed) > 0 else { return false }
        tasks.withLock { $0.append(task) }
        call.post()
        return true
    }

    private static func serve() {
        while true {
            call.wait()
            guard let task = tasks.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) else { continue }
            // Threads may be had again, and this one stays free for the next.
            if let thread = try? WorkerThread.start("grantfs-task", task) { thread.detach() } else { task() }
        }
    }
}
