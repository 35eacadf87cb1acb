import CGrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// The workers that read requests from the kernel, and those on standby.
///
/// The kernel wakes sleeping readers in turn (fs/fuse/dev.c, an exclusive wait). A few readers
/// suffice while requests are short. With a single one, a program that opens and closes files would
/// wait for the asynchronous RELEASE. `Session.monitorReaders` checks every millisecond whether
/// readers are blocked. Standby workers cost nothing. Figures are in docs/performance.md.
struct ReaderPool: ~Copyable {
    /// `taken << 32 | idle`: requests taken so far, and idle readers.
    ///
    /// One word, because every request changes both.
    private let counts = Atomic<UInt64>(0)
    /// The number of workers that are not on standby.
    private let number = Atomic<Int>(0)
    private let standby = Atomic<Int>(0)
    private let wakeup = Semaphore()
    /// Whether there is one reader more than needed: the next idle one may go on standby.
    let hasSurplusReader = Atomic<Bool>(false)
    /// Whether the monitor sleeps until a request arrives.
    let isMonitorAsleep = Atomic<Bool>(false)
    let monitor = Semaphore()

    /// The least number of readers.
    static let minimum = 4
    /// The most idle readers, which hold up to two megabytes each.
    static let maxIdle: UInt32 = 8
    /// Standby workers that never end.
    ///
    /// If no thread can be made, there must be more workers than a few hung requests occupy.
    static let reserve = 12
    /// The same, for parked requests that are resumed.
    static let reserveForResumed = 2
    /// With more workers than this their distribution is checked: see `Session.pollWorkers`.
    static let largePool = 32
    /// Whether a check was requested although no requests arrive.
    let isCheckRequested = Atomic<Bool>(false)

    /// How long a standby worker waits before it ends and returns its memory.
    private static let standbyNanoseconds: Int64 = 10_000_000_000

    // MARK: on the way of a request

    /// Records that a worker begins to wait for a request.
    @inline(__always)
    func beginWaiting() { counts.wrappingAdd(1, ordering: .sequentiallyConsistent) }

    /// Records that a worker has a request. Returns how many other readers are idle.
    @inline(__always)
    func tookRequest() -> UInt32 {
        let left = counts.wrappingAdd(1 << 32 - 1, ordering: .sequentiallyConsistent).newValue
        // The monitor stores its flag and then reads `counts`.
        if isMonitorAsleep.load(ordering: .sequentiallyConsistent), isMonitorAsleep.exchange(false, ordering: .sequentiallyConsistent) {
            monitor.post()
        }
        return UInt32(truncatingIfNeeded: left)
    }

    /// Whether the calling idle worker should go on standby.
    ///
    /// It should if there is a surplus reader and another idle one. It also should if there are too
    /// many idle readers: they would keep their memory forever, since a blocked reader sees only
    /// requests.
    @inline(__always)
    func shouldStandBy() -> Bool {
        if snapshot.idle >= Self.maxIdle { return true }
        return hasSurplusReader.load(ordering: .relaxed) && snapshot.idle > 0 && hasSurplusReader.exchange(false, ordering: .relaxed)
    }

    // MARK: standby

    /// Requests taken so far, modulo 2³², and idle readers.
    var snapshot: (taken: UInt32, idle: UInt32) {
        let value = counts.load(ordering: .sequentiallyConsistent)
        return (UInt32(truncatingIfNeeded: value >> 32), UInt32(truncatingIfNeeded: value))
    }

    var count: Int { number.load(ordering: .relaxed) }
    /// The number of workers, including standby.
    var workers: Int { count + standby.load(ordering: .relaxed) }

    func began() { number.wrappingAdd(1, ordering: .relaxed) }
    func ended() { number.wrappingSubtract(1, ordering: .relaxed) }

    /// Goes on standby until it is woken, and runs `idle` if that takes long.
    ///
    /// False after a longer timeout. The worker must then end, and is no longer counted.
    func standBy(idle: () -> Void) -> Bool {
        number.wrappingSubtract(1, ordering: .relaxed)
        standby.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if wakeup.wait(until: Clock.monotonic + Self.standbyNanoseconds) { return true }
        // Another thread has claimed this worker and is about to wake it.
        if claimStandby(leaving: Self.reserve) { return false }
        idle()
        wakeup.wait()
        return true
    }

    /// Wakes a standby worker. Returns false if only `rest` of them are left.
    func wakeOne(leaving rest: Int = 0) -> Bool {
        guard claimStandby(leaving: rest) else { return false }
        number.wrappingAdd(1, ordering: .relaxed)
        wakeup.post()
        return true
    }

    private func claimStandby(leaving rest: Int = 0) -> Bool {
        var seen = standby.load(ordering: .sequentiallyConsistent)
        while seen > rest {
            let (done, now) = standby.compareExchange(expected: seen, desired: seen - 1, ordering: .sequentiallyConsistent)
            if done { return true }
            seen = now
        }
        return false
    }
}

extension Session {
    /// Adds readers when all are blocked and retires surplus ones.
    ///
    /// Runs on a thread of its own that serves no requests, allocates no memory, and sleeps while
    /// there is nothing to do.
    /// - It sees a slow request within two milliseconds. While readers stay blocked it doubles
    ///   them.
    /// - When requests keep waiting although others are answered, it adds one.
    /// - When a reader was idle for a while, it retires one.
    ///
    /// It also keeps idle processors from halting while requests arrive quickly (`IdlePolling`).
    func monitorReaders() {
        var before = readers.snapshot.taken
        var (quiet, waited, spare, step) = (0, 0, 0, 1)
        var isWatching = false
        var rate = RequestRate()
        let polling = context.pointee.options.idlePolling
        defer { polling?.end() }
        while !hasEnded {
            if quiet >= 3, !rate.isHigh, !isWatching { quiet = sleepUnlessBusy(since: before) ? 0 : quiet }
            usleep(1_000)
            isChecking.store(true, ordering: .sequentiallyConsistent)
            defer { isChecking.store(false, ordering: .releasing) }
            if isPausing.load(ordering: .sequentiallyConsistent) { continue }
            let now = readers.snapshot
            let isHeldUp = now.taken == before && now.idle == 0
            quiet = now.taken == before && now.idle > 0 ? quiet + 1 : 0
            if let polling, rate.update(now.taken &- before) {
                if rate.isHigh { polling.begin() } else { polling.end() }
            }
            before = now.taken
            spare = now.idle > 0 ? spare + 1 : 0
            if spare >= 32 {
                spare = 0
                readers.hasSurplusReader.store(readers.count > ReaderPool.minimum, ordering: .relaxed)
            }
            // Before readers are added, so that a holder of too many gets none of them.
            if isHeldUp || waited >= 2 || isWatching || readers.workers > ReaderPool.largePool
                || readers.isCheckRequested.load(ordering: .relaxed)
            {
                readers.isCheckRequested.store(false, ordering: .sequentiallyConsistent)
                isWatching = pollWorkers()
                if hasRunnable { startResuming(leaving: 0) }
            }
            if isHeldUp {
                for _ in 0..<step where !addReader() { break }
                step = min(step * 2, 64)
                continue
            }
            step = 1
            waited = now.idle == 0 && hasWaitingRequest ? waited + 1 : max(waited - 1, 0)
            if waited >= 3 {
                waited = 0
                addReader()
            }
        }
    }

    /// Sleeps until the next request, if none arrived since and a reader is idle.
    private func sleepUnlessBusy(since taken: UInt32) -> Bool {
        readers.isMonitorAsleep.store(true, ordering: .sequentiallyConsistent)
        let now = readers.snapshot
        if now.taken == taken, now.idle > 0, !hasEnded, !readers.isCheckRequested.load(ordering: .sequentiallyConsistent) {
            readers.monitor.waitForAny()
            return true
        }
        readers.isMonitorAsleep.store(false, ordering: .sequentiallyConsistent)
        return false
    }

    /// Requests a call of `pollWorkers`, repeated for as long as it returns true.
    public func wakeMonitor() {
        readers.isCheckRequested.store(true, ordering: .sequentiallyConsistent)
        if readers.isMonitorAsleep.exchange(false, ordering: .sequentiallyConsistent) { readers.monitor.post() }
    }

    private var hasWaitingRequest: Bool {
        var request = pollfd(fd: fuse_session_fd(pointer), events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        return poll(&request, 1, 0) > 0
    }

    /// Adds a reader, unless all slots are taken.
    ///
    /// Returns false if it came from the reserve because no thread can be made. Such readers are
    /// added singly, with a check of the other workers in between. Called by the monitor.
    @discardableResult
    private func addReader() -> Bool {
        if readers.wakeOne(leaving: ReaderPool.reserve) || startWorker() { return true }
        _ = readers.wakeOne()
        return false
    }

    /// Wakes all workers after the end of the connection, and they end.
    func wakeAll() {
        readers.monitor.post()
        for _ in 0..<ReaderPool.reserveForResumed { resumeWakeup.post() }
        while readers.wakeOne() {}
    }
}
