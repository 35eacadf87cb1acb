/// Which slots have no worker, and how many workers can be had when threads run out (RLIMIT_NPROC, pids.max of the control group).
struct WorkerSlots {
    private let limit: Int
    private var free: [Int]
    /// How many workers there were when a thread could not be made, and at the most since then. nil until that happens.
    private var shortage: (began: Int, most: Int)?

    /// So many more than at the beginning of a shortage, and it is over.
    private static let recoveryMargin = 64

    init(limit: Int) {
        self.limit = limit
        free = (0..<limit).reversed()
    }

    /// With those that are being started.
    private var count: Int { limit - free.count }

    /// A slot for a worker that is to be started; nil when all are taken.
    mutating func take() -> Int? { free.popLast() }

    /// The worker of that slot has ended.
    mutating func release(_ slot: Int) { free.append(slot) }

    /// There was no memory or no thread for it.
    mutating func releaseUnused(_ slot: Int) {
        free.append(slot)
        shortage = (count, count)
    }

    /// A worker was started.
    mutating func workerStarted() {
        guard let (began, most) = shortage, count > most else { return }
        shortage = count - began >= Self.recoveryMargin ? nil : (began, count)
    }

    /// During a shortage: how many workers there are, and as many again as could be made since it began. One thread that some other program has left, and that
    /// the next may take, is not taken for an end of the shortage. nil when there is none.
    var guaranteed: Int? { shortage.map { min(limit, count + $0.most - $0.began) } }
}
