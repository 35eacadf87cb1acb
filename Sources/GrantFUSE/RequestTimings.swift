import GrantSystem
import Synchronization

/// Latencies of requests of one kind, from receipt until the worker is done.
///
/// A waiting lock counts until it is parked.
///
/// One request in `sampling` of each kind is timed, because two clock reads cost a hundredth of the
/// fastest request. It is every eighth per kind and worker, so that no pattern of a program hides a
/// kind.
public struct RequestTimings: Sendable {
    public static let sampling: UInt64 = 8
    /// Counters per kind: the buckets, then the sum.
    static let width = DurationBuckets.count + 1

    public let opcode: UInt32
    /// Timed requests per bucket of `DurationBuckets`.
    public let buckets: [UInt64]
    public let nanoseconds: UInt64
}

extension Worker {
    /// Records a latency. On the worker's thread.
    @inline(__always)
    func recordLatency(nanoseconds: Int64, of kind: Int) {
        let counters = timings + kind * RequestTimings.width
        Worker.add(1, to: counters + DurationBuckets.index(of: nanoseconds))
        Worker.add(UInt64(clamping: nanoseconds), to: counters + DurationBuckets.count)
    }

    /// Counts bytes read or written for a program. On the worker's thread.
    @inline(__always) public func count(read count: Int) { Worker.add(UInt64(clamping: count), to: counts + RequestCounts.readBytes) }
    @inline(__always) public func count(written count: Int) { Worker.add(UInt64(clamping: count), to: counts + RequestCounts.writtenBytes) }

    /// Adds to a counter that has one writer.
    ///
    /// So no atomic read-modify-write is needed.
    @inline(__always)
    static func add(_ count: UInt64, to counter: UnsafeMutablePointer<Atomic<UInt64>>) {
        counter.pointee.store(counter.pointee.load(ordering: .relaxed) &+ count, ordering: .relaxed)
    }
}

extension Session {
    /// The current latencies of the kinds that were timed.
    ///
    /// Not a consistent snapshot, because workers continue.
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

    /// Bytes read and written for programs, including the kernel's readahead and write-back.
    public var transferred: (read: UInt64, written: UInt64) {
        (0..<workerLimit).reduce(into: (read: 0, written: 0)) { sum, slot in
            let counts = workers[slot].counts
            sum.read &+= counts[RequestCounts.readBytes].load(ordering: .relaxed)
            sum.written &+= counts[RequestCounts.writtenBytes].load(ordering: .relaxed)
        }
    }

    /// The number of threads that serve requests or are ready to.
    public var workerCount: Int { readers.workers }

    /// Total time for which idle processors were kept from halting.
    public var idlePollingNanoseconds: UInt64 { context.pointee.options.idlePolling?.nanoseconds ?? 0 }
}
