import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// Delays refusals for programs that immediately repeat a refused read of a file's data.
///
/// Such programs would take the processor from others. Before Linux 6.9 (631426ba1d45) the kernel
/// does that by itself: `madvise` with MADV_POPULATE_READ or MADV_POPULATE_WRITE, on a mapping of
/// refused pages, sends READ after READ until its process is killed. Only data would end that.
///
/// Each file has a leaky bucket for `most` refusals, of which one leaks out every `pause`. A read
/// that finds its bucket full is parked for `pause`, without a worker. Files may share a bucket,
/// which costs them those milliseconds.
///
/// Locking: `held` is rank 2. No reply is sent while it is held. Callers that are not refused never
/// get here.
final class RefusedReadThrottle: @unchecked Sendable {
    // Sendable: `view` is set before the first request. `buckets` are atomic and freed in `deinit`.
    nonisolated(unsafe) unowned var view: ViewFS!
    /// `milliseconds << 8 | level`. Of two concurrent refusals one may go uncounted.
    private let buckets: UnsafeMutablePointer<Atomic<UInt64>>
    private let held = Lock<[Held]>([])
    /// The number of running withdrawals, during which no read is delayed.
    ///
    /// Their invalidations wait for pages that are being read.
    let withdrawals = Atomic<Int>(0)

    private struct Held {
        let unique: UInt64
        /// Nanoseconds of `Clock.monotonic`.
        let due: Int64
    }

    /// A power of two.
    private static let count = 64
    private static let most: UInt64 = 64
    private static let pause: Int64 = 10_000_000
    private static let pauseMilliseconds: UInt64 = 10
    /// The limit of delayed reads.
    ///
    /// It is a small part of the reads that the kernel sends ahead for a whole mount
    /// (`Session.configure`). Refused callers must not use up all of them.
    private static let heldAtMost = 256

    init() {
        buckets = .allocate(capacity: Self.count)
        for index in 0..<Self.count { (buckets + index).initialize(to: Atomic(0)) }
    }

    deinit {
        buckets.deinitialize(count: Self.count)
        buckets.deallocate()
    }

    /// Replies EACCES, with a delay if the file's data was refused very often just now.
    @inline(never)
    func refuse(_ request: consuming Request, node: UInt64, scope: UInt32) {
        let now = Clock.monotonic
        guard isFull(node, now), withdrawals.load(ordering: .relaxed) == 0, held.withLock({ $0.count < Self.heldAtMost }),
            let session = view.session
        else {
            request.reply(error: EACCES)
            return
        }
        switch session.park(request, scope: scope, otherwise: EACCES) {
        case .parked(let unique):
            held.withLock { $0.append(Held(unique: unique, due: now + Self.pause)) }
            session.wakeMonitor()
        case .answered: break
        }
    }

    /// Refuses a delayed request that is about to be answered because it was interrupted.
    func cancel(_ unique: UInt64) {
        let isHeld = held.withLock { held -> Bool in
            guard let index = held.firstIndex(where: { $0.unique == unique }) else { return false }
            held.remove(at: index)
            return true
        }
        if isHeld { view.session?.answer(parked: unique, error: EACCES) }
    }

    /// Answers the requests that are due. Returns whether any request still waits.
    ///
    /// Called by the thread that monitors workers.
    func poll() -> Bool {
        guard let session = view.session else { return false }
        let now = Clock.monotonic
        let (due, isAny) = held.withLock { held -> ([UInt64], Bool) in
            // They are in order of arrival.
            let count = held.firstIndex { $0.due > now } ?? held.count
            let due = held.prefix(count).map(\.unique)
            held.removeFirst(count)
            return (due, !held.isEmpty)
        }
        for unique in due { session.answer(parked: unique, error: EACCES) }
        return isAny
    }

    /// Counts one refusal. Returns whether there were too many.
    private func isFull(_ node: UInt64, _ now: Int64) -> Bool {
        // Node numbers differ in their lowest bits.
        let bucket = buckets + Int(truncatingIfNeeded: node & UInt64(truncatingIfNeeded: Self.count - 1))
        let time = UInt64(truncatingIfNeeded: now / 1_000_000)
        let before = bucket.pointee.load(ordering: .relaxed)
        let leaked = (time &- before >> 8) / Self.pauseMilliseconds
        let level = before & 0xFF
        if level >= Self.most, leaked == 0 { return true }
        // A partial leak counts next time.
        let rest = level > leaked ? level - leaked : 0
        let since = rest == 0 ? time : before >> 8 &+ leaked &* Self.pauseMilliseconds
        bucket.pointee.store(since << 8 | (rest + 1), ordering: .relaxed)
        return false
    }
}
