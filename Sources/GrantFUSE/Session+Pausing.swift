import CGrantFUSE
import CGrantSystem
import Glibc
import GrantSystem

// A pause: no request is received or served, and none is lost. The kernel queues new requests, and
// programs wait.
extension Session {
    /// Stops every worker between two requests, and waits until all have stopped.
    ///
    /// Requests received but not started are kept for `endPause` or the next daemon (`unserved`).
    /// Returns false if a worker has not finished by `deadline` (`Clock.monotonic`, nanoseconds)
    /// because a filesystem hangs. There is then no pause.
    ///
    /// A signal wakes workers that wait for a request. A worker that serves one never gets the
    /// signal, which would make its system call fail (EINTR). So the pause is announced first, and
    /// then each worker's activity is read. A worker that had a request and missed the announcement
    /// is seen to be busy, because it stores its activity before it reads the announcement.
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

    /// Resumes, with the kept requests first.
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

    /// Initializes a worker on its own thread.
    func begin(_ worker: UnsafeMutablePointer<Worker>) {
        worker.pointee.thread.store(clinux_gettid(), ordering: .relaxed)
        _ = clinux_thread_allow_wake()
        worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
    }

    /// Waits until the pause ends.
    @inline(never)
    func waitOutPause(_ worker: UnsafeMutablePointer<Worker>) {
        worker.pointee.activity.store(.idle, ordering: .sequentiallyConsistent)
        while isPausing.load(ordering: .acquiring), !hasEnded { usleep(200) }
        worker.pointee.activity.store(.busy, ordering: .sequentiallyConsistent)
    }

    /// Keeps a request that arrived as the pause began.
    @inline(never)
    func deferMessage(_ message: Message, _ buffer: borrowing fuse_buf) {
        let kept = ParkedMessage(UnsafeRawBufferPointer(start: buffer.mem, count: message.size), journal: context.pointee.journal)
        parked.withLock { $0.ready.append(kept) }
        // A pause that ended meanwhile may not have seen it.
        if !isPausing.load(ordering: .sequentiallyConsistent) { startResuming() }
    }

    // MARK: state for the next daemon

    /// The raw requests that were received and not started. During a pause.
    public var unserved: [[UInt8]] {
        parked.withLock { parked in
            (parked.ready + parked.waiting.values).map { Array(UnsafeRawBufferPointer(start: $0.memory, count: $0.size)) }
        }
    }

    /// Serves requests that another daemon received. Call it before `start`.
    public func takeOver(unserved: [[UInt8]]) {
        for message in unserved {
            let kept = message.withUnsafeBytes { ParkedMessage($0, journal: context.pointee.journal) }
            parked.withLock { $0.ready.append(kept) }
        }
    }

    /// The /dev/fuse descriptor. The session keeps ownership.
    public var device: Int32 { fuse_session_fd(pointer) }

    /// The FUSE_INIT exchange with the kernel when it was mounted.
    public var negotiation: Negotiation { context.pointee.negotiation }

    /// The sums of all workers' counters: of requests and latencies. During a pause.
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

    /// Continues from these counters. Call it before `start`.
    ///
    /// Ignores counters of a program that has more or fewer.
    public func takeOver(counters: [UInt64]) {
        let (counts, timings) = (RequestCounts.width, RequestCounts.kinds * RequestTimings.width)
        guard counters.count == counts + timings else { return }
        for place in 0..<counts { workers.pointee.counts[place].store(counters[place], ordering: .relaxed) }
        for place in 0..<timings { workers.pointee.timings[place].store(counters[counts + place], ordering: .relaxed) }
    }
}

/// The FUSE_INIT exchange between kernel and daemon, byte for byte.
///
/// It fixes the features of the connection.
public struct Negotiation: Sendable, Equatable {
    public var request: [UInt8] = []
    public var answer: [UInt8] = []

    public init() {}

    public init(request: [UInt8], answer: [UInt8]) { (self.request, self.answer) = (request, answer) }
}
