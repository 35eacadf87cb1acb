/// Allocates worker slots, and tracks how many workers are possible when threads run out.
///
/// The limits are RLIMIT_NPROC, and pids.max of the control group.
struct WorkerSlots {
    private let limit: Int
    private var free: [Int]
    /// The number of workers when a thread could not be made, and the maximum since.
    ///
    /// nil until that happens.
    private var shortage: (began: Int, most: Int)?

    /// How many more workers than at its beginning end a shortage.
    private static let recoveryMargin = 64

    init(limit: Int) {
        self.limit = limit
        free = (0..<limit).reversed()
    }

    /// Including those being started.
    private var count: Int { limit - free.count }

    /// Takes a slot for a new worker. Returns nil if all are taken.
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

    /// The workers that are certain during a shortage. It is nil if there is none.
    ///
    /// These are the current workers, and as many more as could be made since it began. A thread
    /// that another program releases, and that the next may take, does not end the shortage.
    var guaranteed: Int? { shortage.map { min(limit, count + $0.most - $0.began) } }
}
