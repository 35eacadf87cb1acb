import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// Delays refusals for programs that ask for a file's data again at once after each one, so that they take no processor from
/// others.
///
/// Before Linux 6.9 (631426ba1d45) the kernel does that by itself: `madvise` with MADV_POPULATE_READ or MADV_POPULATE_WRITE, on a
/// mapping whose pages are refused, sends READ after READ until its process is killed. Only data would end that.
///
/// Each file has a leaky bucket that holds `most` refusals; one leaks out every `pause`. A read that finds it full is parked for
/// `pause`, without a worker. Files may share a bucket, which costs them those milliseconds.
///
/// Locking: `held` is rank 2: while it is held, nothing is answered. Callers that are not refused never get here.
final class RefusedReadThrottle: @unchecked Sendable {
    // Safe to share: `view` is set before the first request comes, `buckets` are atomic and never freed before this.
    nonisolated(unsafe) unowned var view: ViewFS!
    /// `milliseconds << 8 | level`. Of two concurrent refusals one may go uncounted.
    private let buckets: UnsafeMutablePointer<Atomic<UInt64>>
    private let held = Lock<[Held]>([])
    /// How many withdrawals are under way. Their invalidations wait for pages that are being read, so no read is delayed meanwhile.
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
    /// The limit of delayed reads, a small part of what the kernel reads ahead for a whole mount (`Session.configure`): refused
    /// callers must not use up all of that.
    private static let heldAtMost = 256

    init() {
        buckets = .allocate(capacity: Self.count)
        for index in 0..<Self.count { (buckets + index).initialize(to: Atomic(0)) }
    }

    deinit {
        buckets.deinitialize(count: Self.count)
        buckets.deallocate()
    }

    /// Replies EACCES: at once, or, where the file's data was refused very often just now, a little later.
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

    /// Answers the requests that are due. For the thread that monitors workers. Returns whether any still waits.
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
