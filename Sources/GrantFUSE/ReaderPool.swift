import CGrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// How many workers read requests from the kernel, and those who do not for now.
///
/// The kernel wakes sleeping readers in turn (fs/fuse/dev.c, an exclusive wait). A few are enough as long as requests are short: with one, a
/// program that opens and closes files waits for the RELEASE that nobody waits for. `Session.monitorReaders` looks every millisecond whether they
/// are held up; the others stand by and cost nothing. The figures are in docs/performance.md.
struct ReaderPool: ~Copyable {
    /// `taken << 32 | idle`: requests taken so far, and readers that wait for one. In one word, because each request changes both.
    private let counts = Atomic<UInt64>(0)
    /// Workers that are not standing by.
    private let number = Atomic<Int>(0)
    private let standby = Atomic<Int>(0)
    private let wakeup = Semaphore()
    /// One reader more than needed was seen.
    let hasSurplusReader = Atomic<Bool>(false)
    /// Whether the watching thread waits until a request comes.
    let isMonitorAsleep = Atomic<Bool>(false)
    let monitor = Semaphore()

    /// So many read, however little there is to do.
    static let minimum = 4
    /// So many wait for requests, with two megabytes each at the most.
    static let maxIdle: UInt32 = 8
    /// So many stand by, however long nobody calls them: threads can run out, and then a few requests that hang must not be all there are.
    static let reserve = 12
    /// The same for what was put aside.
    static let reserveForResumed = 2
    /// More workers than that are looked at: see `Session.pollWorkers`.
    static let largePool = 32
    /// Something is to be looked at, although no requests come.
    let isCheckRequested = Atomic<Bool>(false)

    /// So long somebody stands by who is not called; then the thread ends and gives its memory back.
    private static let standbyNanoseconds: Int64 = 10_000_000_000

    // MARK: on the way of a request

    /// A worker waits for requests from now on.
    @inline(__always)
    func beginWaiting() { counts.wrappingAdd(1, ordering: .sequentiallyConsistent) }

    /// It has one. Returns how many others wait.
    @inline(__always)
    func tookRequest() -> UInt32 {
        let left = counts.wrappingAdd(1 << 32 - 1, ordering: .sequentiallyConsistent).newValue
        // Whoever goes to sleep stores and then looks at `counts`.
        if isMonitorAsleep.load(ordering: .sequentiallyConsistent), isMonitorAsleep.exchange(false, ordering: .sequentiallyConsistent) {
            monitor.post()
        }
        return UInt32(truncatingIfNeeded: left)
    }

    /// Whether the caller, who has no request, had better stand by: one reader is too many, and another waits in its place; or so many wait that they would
    /// keep their memory for ever, as who waits for a request hears of nothing else.
    @inline(__always)
    func shouldStandBy() -> Bool {
        if snapshot.idle >= Self.maxIdle { return true }
        return hasSurplusReader.load(ordering: .relaxed) && snapshot.idle > 0 && hasSurplusReader.exchange(false, ordering: .relaxed)
    }

    // MARK: coming and going

    /// Requests taken so far, modulo 2³², and how many readers wait.
    var snapshot: (taken: UInt32, idle: UInt32) {
        let value = counts.load(ordering: .sequentiallyConsistent)
        return (UInt32(truncatingIfNeeded: value >> 32), UInt32(truncatingIfNeeded: value))
    }

    var count: Int { number.load(ordering: .relaxed) }
    /// With those who stand by.
    var workers: Int { count + standby.load(ordering: .relaxed) }

    func began() { number.wrappingAdd(1, ordering: .relaxed) }
    func ended() { number.wrappingSubtract(1, ordering: .relaxed) }

    /// Stands by until called; `idle` is done when that takes long. False when nobody has called for a while: then the worker ends, and is not counted any more.
    func standBy(idle: () -> Void) -> Bool {
        number.wrappingSubtract(1, ordering: .relaxed)
        standby.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if wakeup.wait(until: Clock.monotonic + Self.standbyNanoseconds) { return true }
        // Who has taken us off is about to call.
        if claimStandby(leaving: Self.reserve) { return false }
        idle()
        wakeup.wait()
        return true
    }

    /// Calls one who stands by; false when nobody does but the `rest` that is to be left.
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
    /// Adds readers when those there are held up, and lets one stand by when one is not needed. On a thread of its own that serves no request, takes
    /// no memory, and sleeps while nothing happens.
    ///
    /// - A request that takes long is seen within two milliseconds; when that goes on, readers double.
    /// - When requests keep waiting although others are answered, there is one more.
    /// - When somebody had nothing to do for a while, there is one less.
    ///
    /// It also keeps idle processors from halting while requests come quickly (`IdlePolling`).
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
            // Before there are more, so that who holds too many gets none of them.
            if isHeldUp || waited >= 2 || isWatching || readers.workers > ReaderPool.largePool || readers.isCheckRequested.load(ordering: .relaxed) {
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

    /// Waits for the next request if there was none since, and somebody is ready for it.
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

    /// Has `pollWorkers` called soon, and from then on for as long as it says so.
    public func wakeMonitor() {
        readers.isCheckRequested.store(true, ordering: .sequentiallyConsistent)
        if readers.isMonitorAsleep.exchange(false, ordering: .sequentiallyConsistent) { readers.monitor.post() }
    }

    private var hasWaitingRequest: Bool {
        var request = pollfd(fd: fuse_session_fd(pointer), events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        return poll(&request, 1, 0) > 0
    }

    /// One more reads requests from now on, unless all slots are taken. False when it had to be one of the reserve, because no thread can be made: then one
    /// after the other, with a look at who holds them in between. For the watching thread.
    @discardableResult
    private func addReader() -> Bool {
        if readers.wakeOne(leaving: ReaderPool.reserve) || startWorker() { return true }
        _ = readers.wakeOne()
        return false
    }

    /// The connection has ended: everybody comes and sees.
    func wakeAll() {
        readers.monitor.post()
        for _ in 0..<ReaderPool.reserveForResumed { resumeWakeup.post() }
        while readers.wakeOne() {}
    }
}
