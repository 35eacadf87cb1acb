import GrantSystem
import Synchronization

/// How long requests of one kind took: from when a worker has received one to when it is done with it. A lock that waits counts
/// until it is put aside.
///
/// One in `sampling` of each kind is timed: two looks at the clock cost a hundredth of the fastest request. It is each eighth of its kind and its
/// worker, so that no order in which programs do things hides a kind.
public struct RequestTimings: Sendable {
    public static let sampling: UInt64 = 8
    /// Counters of one kind: the buckets, then the sum.
    static let width = DurationBuckets.count + 1

    public let opcode: UInt32
    /// Timed requests in each of `DurationBuckets`.
    public let buckets: [UInt64]
    public let nanoseconds: UInt64
}

extension Worker {
    /// Counts a request that took so long. On the worker's thread.
    @inline(__always)
    func recordLatency(nanoseconds: Int64, of kind: Int) {
        let counters = timings + kind * RequestTimings.width
        Worker.add(1, to: counters + DurationBuckets.index(of: nanoseconds))
        Worker.add(UInt64(clamping: nanoseconds), to: counters + DurationBuckets.count)
    }

    /// Counts bytes that were read or written for a program. On the worker's thread.
    @inline(__always) public func count(read count: Int) { Worker.add(UInt64(clamping: count), to: counts + RequestCounts.readBytes) }
    @inline(__always) public func count(written count: Int) { Worker.add(UInt64(clamping: count), to: counts + RequestCounts.writtenBytes) }

    /// One writer: no exchange is needed.
    @inline(__always)
    static func add(_ count: UInt64, to counter: UnsafeMutablePointer<Atomic<UInt64>>) {
        counter.pointee.store(counter.pointee.load(ordering: .relaxed) &+ count, ordering: .relaxed)
    }
}

extension Session {
    /// A snapshot, of the kinds that were timed; not of one moment, as workers go on.
    public var requestTimings: [RequestTimings] {
        (0..<RequestCounts.kinds).compactMap { kind in
            var sums = [UInt64](repeating: 0, count: RequestTimings.width)
            for slot in 0..<workerLimit {
                let counters = workers[slot].timings + kind * RequestTimings.width
                for place in sums.indices { sums[place] &+= counters[place].load(ordering: .relaxed) }
            }
            guard sums.dropLast().contains(where: { $0 > 0 }) else { return nil }
            return RequestTimings(opcode: UInt32(truncatingIfNeeded: kind), buckets: Array(sums.dropLast()), nanoseconds: sums.last!)
        }
    }

    /// Bytes that were read and written for programs, those of the kernel's readahead and write-back included.
    public var transferred: (read: UInt64, written: UInt64) {
        (0..<workerLimit).reduce(into: (read: 0, written: 0)) { sum, slot in
            let counts = workers[slot].counts
            sum.read &+= counts[RequestCounts.readBytes].load(ordering: .relaxed)
            sum.written &+= counts[RequestCounts.writtenBytes].load(ordering: .relaxed)
        }
    }

    /// Threads that serve requests or are ready to.
    public var workerCount: Int { readers.workers }

    /// For how long idle processors were kept from halting, so far.
    public var idlePollingNanoseconds: UInt64 { context.pointee.options.idlePolling?.nanoseconds ?? 0 }
}
