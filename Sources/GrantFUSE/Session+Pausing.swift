import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

// A pause: no request is received or served, and none is lost. The kernel keeps what comes meanwhile, and programs wait.
extension Session {
    /// Has every worker stop between two requests, and waits until all have. What was received and not begun is kept, for `endPause` or for the next daemon
    /// (`unserved`). False when somebody has not come to an end by `deadline` (`Clock.monotonic`, nanoseconds), in a filesystem that hangs: then there is no pause.
    ///
    /// A worker that waits for a request is woken by a signal. One that serves a request never gets it, for a call that it makes would fail (EINTR): the pause is announced
    /// first, then it is looked who waits. Whoever had a request by then and had not seen the announcement is seen to be busy, because it says so before it looks.
    ///
    /// For one thread at a time, which serves no requests and holds no lock.
    public func pause(until deadline: Int64) -> Bool {
        isPausing.store(true, ordering: .sequentiallyConsistent)
        var backoff: UInt32 = 20
        while true {
            if areAllIdle { return true }
            if Clock.monotonic > deadline || hasEnded {
                endPause()
                return false
            }
            usleep(backoff)
            backoff = min(backoff * 2, 1_000)
        }
    }

    /// Goes on: with what was kept first.
    public func endPause() {
        isPausing.store(false, ordering: .sequentiallyConsistent)
        if hasRunnable { startResuming() }
        wakeMonitor()
    }

    private var areAllIdle: Bool {
        var areResting = !isChecking.load(ordering: .sequentiallyConsistent)
        for slot in 0..<workerLimit {
            let worker = workers + slot
            switch worker.pointee.activity.load(ordering: .sequentiallyConsistent) {
            case .none, .idle: continue
            case .busy: areResting = false
            case .receiving:
                areResting = false
                _ = clinux_thread_wake(worker.pointee.thread.load(ordering: .relaxed))
            }
        }
        return areResting
    }

    // MARK: workers

    /// On a worker's thread, before anything else.
    func begin(_ worker: UnsafeMutablePointer<Worker>) {
        worker.pointee.thread.store(clinux_gettid(), ordering: .relaxed)
        _ = clinux_thread_allow_wake()
        worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
    }

    /// Waits until the pause is over.
    @inline(never)
    func waitOutPause(_ worker: UnsafeMutablePointer<Worker>) {
        worker.pointee.activity.store(.idle, ordering: .sequentiallyConsistent)
        while isPausing.load(ordering: .acquiring), !hasEnded { usleep(200) }
        worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
    }

    /// Keeps a request that came as the pause began.
    @inline(never)
    func deferMessage(_ message: Message, _ buffer: borrowing fuse_buf) {
        let kept = ParkedMessage(UnsafeRawBufferPointer(start: buffer.mem, count: message.size), journal: context.pointee.journal)
        parked.withLock { $0.ready.append(kept) }
        // Who has ended the pause meanwhile may have looked before it was there.
        if !isPausing.load(ordering: .sequentiallyConsistent) { startResuming() }
    }

    // MARK: what the next daemon needs

    /// All requests that have come and were not begun, as the kernel wrote them. During a pause.
    public var unserved: [[UInt8]] {
        parked.withLock { parked in
            (parked.ready + parked.waiting.values).map { Array(UnsafeRawBufferPointer(start: $0.memory, count: $0.size)) }
        }
    }

    /// Has requests served that another daemon has received. Before `start`.
    public func takeOver(unserved: [[UInt8]]) {
        for message in unserved {
            let kept = message.withUnsafeBytes { ParkedMessage($0, journal: context.pointee.journal) }
            parked.withLock { $0.ready.append(kept) }
        }
    }

    /// Where requests come from. It stays the session's.
    public var device: Int32 { fuse_session_fd(pointer) }

    /// What was agreed on with the kernel when it was mounted.
    public var negotiation: Negotiation { context.pointee.negotiation }

    /// The counters of all workers together: of requests and of how long they took. During a pause.
    public var counters: [UInt64] {
        let (counts, timings) = (RequestCounts.width, RequestCounts.kinds * RequestTimings.width)
        var sums = [UInt64](repeating: 0, count: counts + timings)
        for slot in 0..<workerLimit {
            let worker = workers + slot
            for place in 0..<counts { sums[place] &+= worker.pointee.counts[place].load(ordering: .relaxed) }
            for place in 0..<timings { sums[counts + place] &+= worker.pointee.timings[place].load(ordering: .relaxed) }
        }
        return sums
    }

    /// Goes on counting from there. Before `start`; counters of another program, of which there are more or fewer, are left.
    public func takeOver(counters: [UInt64]) {
        let (counts, timings) = (RequestCounts.width, RequestCounts.kinds * RequestTimings.width)
        guard counters.count == counts + timings else { return }
        for place in 0..<counts { workers.pointee.counts[place].store(counters[place], ordering: .relaxed) }
        for place in 0..<timings { workers.pointee.timings[place].store(counters[counts + place], ordering: .relaxed) }
    }
}

/// What kernel and daemon have said to each other in FUSE_INIT, byte for byte: what the connection can do from then on.
public struct Negotiation: Sendable, Equatable {
    public var request: [UInt8] = []
    public var answer: [UInt8] = []

    public init() {}

    public init(request: [UInt8], answer: [UInt8]) { (self.request, self.answer) = (request, answer) }
}
