import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem

/// Opens and truncations that wait for a lease of a host program (fcntl(2), F_SETLEASE).
///
/// They are parked without a worker. The kernel has notified the holder of the lease, which
/// releases it or loses it after /proc/sys/fs/lease-break-time seconds. open(2) and truncate(2)
/// block until then. The daemon's calls do not (O_NONBLOCK), so their requests are parked and
/// served from the start at intervals. A caller that used O_NONBLOCK itself gets EWOULDBLOCK, as
/// natively.
///
/// Locking: `state` is rank 2. While it is held, no reply is sent and no file is accessed.
final class LeaseWaitQueue: @unchecked Sendable {
    // Sendable: `view` is set before the first request.
    nonisolated(unsafe) unowned var view: ViewFS!
    private let state = Lock(State())

    private struct State {
        var waiting: [UInt64: Waiter] = [:]
        var queues: [UInt32: Queue] = [:]
        /// Requests that are being retried. Their waiters keep the deadline.
        var trying: [UInt64: Waiter] = [:]
        var next: Int64 = 0
    }

    private struct Waiter {
        let scope: UInt32
        /// The time at which it gives up, by `Clock.monotonic`. nil means never.
        let deadline: Int64?
        let call: AuditTrail.PendingCall?
    }

    /// The waiters of one scope in order of arrival.
    ///
    /// `batch` of them are retried at once. The batch grows while leases are released.
    private struct Queue {
        var uniques: [UInt64] = []
        var batch = Queue.fewest
        /// How many retried requests have not been parked again.
        var tried = 0
        static let fewest = 4
        static let most = 64
    }

    /// Nanoseconds between two retries in a scope.
    private static let pause: Int64 = 5_000_000

    /// The number of waiting requests.
    var count: Int { state.withLock { $0.waiting.count } }

    /// Parks a request that met a lease. Call it inside the scope.
    ///
    /// Replies EAGAIN if the request has waited longer than a lease can last, because the error
    /// then had another cause.
    func wait(_ request: consuming Request, in scope: UInt32, _ call: AuditTrail.PendingCall?) {
        guard let session = view.session else { return }
        let number = request.unique
        let known = state.withLock { state -> Waiter? in
            let known = state.trying.removeValue(forKey: number)
            if known != nil { state.queues[scope]?.tried -= 1 }
            return known
        }
        let waiter = known ?? Waiter(scope: scope, deadline: Self.deadline(), call: call)
        if let deadline = waiter.deadline, Clock.monotonic > deadline {
            recordOutcome(waiter.call, error: EAGAIN)
            request.reply(error: EAGAIN)
            return
        }
        let unique: UInt64
        switch session.park(request, scope: scope) {
        case .parked(let number): unique = number
        case .answered(let error): return recordOutcome(waiter.call, error: error)
        }
        state.withLock { state in
            state.waiting[unique] = waiter
            state.queues[scope, default: Queue()].uniques.append(unique)
        }
        // It was interrupted before it was in the table.
        if !session.isParked(unique) { cancel(unique) }
        session.wakeMonitor()
    }

    /// Removes a request that is about to be answered because it was interrupted.
    func cancel(_ unique: UInt64) {
        if let waiter = state.withLock({ $0.waiting.removeValue(forKey: unique) }) { recordOutcome(waiter.call, error: EINTR) }
    }

    /// Resumes the waiters that are due, and refuses those below a withdrawn grant.
    ///
    /// Returns whether any request waits. Called by the thread that monitors workers.
    func poll() -> Bool {
        guard let session = view.session else { return false }
        let now = Clock.monotonic
        let (again, refused, isAny) = state.withLock { state -> ([UInt64], [UInt64: Waiter], Bool) in
            if state.waiting.isEmpty {
                if state.trying.isEmpty || now > state.next + 1_000_000_000 { (state.trying, state.queues) = ([:], [:]) }
                return ([], [:], !state.trying.isEmpty)
            }
            var refused: [UInt64: Waiter] = [:]
            for (scope, queue) in state.queues {
                guard view.coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.read) else { continue }
                for unique in queue.uniques { refused[unique] = state.waiting.removeValue(forKey: unique) }
                state.queues[scope] = nil
            }
            guard now >= state.next else { return ([], refused, true) }
            state.next = now + Self.pause
            return (takeTurns(&state), refused, true)
        }
        if !again.isEmpty { session.resume(again) }
        for (unique, waiter) in refused {
            recordOutcome(waiter.call, error: EACCES)
            session.answer(parked: unique, error: EACCES)
        }
        return isAny
    }

    /// Takes the next batch of every scope for a retry.
    private func takeTurns(_ state: inout State) -> [UInt64] {
        var again: [UInt64] = []
        for scope in state.queues.keys {
            guard var queue = state.queues[scope] else { continue }
            // A request got through: others may, too.
            queue.batch = queue.tried > 0 ? min(queue.batch * 2, Queue.most) : Queue.fewest
            queue.tried = 0
            var taken = 0
            for unique in queue.uniques {
                if queue.tried == queue.batch { break }
                taken += 1
                guard let waiter = state.waiting.removeValue(forKey: unique) else { continue }
                state.trying[unique] = waiter
                queue.tried += 1
                again.append(unique)
            }
            queue.uniques.removeFirst(taken)
            state.queues[scope] = queue
        }
        return again
    }

    private func recordOutcome(_ call: AuditTrail.PendingCall?, error: Int32) {
        if let call { view.audit?.record(call, error: error) }
    }

    /// The deadline of a request that begins to wait. Returns nil if leases never expire.
    ///
    /// In nanoseconds of `Clock.monotonic`, with some seconds added for a busy machine.
    private static func deadline() -> Int64? {
        guard let text = try? File.contents(of: "/proc/sys/fs/lease-break-time".utf8),
            let seconds = Int64(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self), radix: 10)
        else { return Clock.monotonic + 50_000_000_000 }
        return seconds <= 0 || seconds > 1_000_000 ? nil : Clock.monotonic + (seconds + 5) * 1_000_000_000
    }
}

extension ViewFS {
    /// Returned by `truncate` if a lease prevents it. It is not an error number.
    static let leaseInTheWay = Int32.min

    /// Whether EAGAIN from an open with O_NONBLOCK means that the file has a lease.
    ///
    /// On a filesystem with a server it may be the server's own error.
    func isLease(_ error: Int32, _ node: NodePointer) -> Bool { error == -EAGAIN && !node.pointee.usesCallerGroups }
}
