/// Allocates worker slots, and tracks how many workers can be had when threads run out (RLIMIT_NPROC, pids.max of the control
/// group).
struct WorkerSlots {
    private let limit: Int
    private var free: [Int]
    /// The number of workers when a thread could not be made, and the maximum since. nil until that happens.
    private var shortage: (began: Int, most: Int)?

    /// The shortage is over with so many more workers than at its beginning.
    private static let recoveryMargin = 64

    init(limit: Int) {
        self.limit = limit
        free = (0..<limit).reversed()
    }

    /// Including those being started.
    private var count: Int { limit - free.count }

    /// Takes a slot for a new worker; nil when all are taken.
    mutating func take() -> Int? { free.popLast() }

    /// Frees the slot of a worker that has ended.
    mutating func release(_ slot: Int) { free.append(slot) }

    /// Frees the slot of a worker for which there was no memory or thread.
    mutating func releaseUnused(_ slot: Int) {
        free.append(slot)
        shortage = (count, count)
    }

    /// Records that a worker was started.
    mutating func workerStarted() {
        guard let (began, most) = shortage, count > most else { return }
        shortage = count - began >= Self.recoveryMargin ? nil : (began, count)
    }

    /// During a shortage: the current workers, and as many more as could be made since it began. One thread that another program
    /// releases, and that the next may take, does not end the shortage. nil when there is none.
    var guaranteed: Int? { shortage.map { min(limit, count + $0.most - $0.began) } }
}
