import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem

/// Openings and truncations of files on which somebody beside the mount has a lease (fcntl(2), F_SETLEASE), without a worker.
///
/// The kernel has told the lease's holder that somebody comes, who lets go when he has put his things in order, or loses the lease
/// after /proc/sys/fs/lease-break-time seconds. open(2) and truncate(2) wait for that; the daemon's do not (O_NONBLOCK), and their requests are put aside and
/// served from the start now and then. Who asked with O_NONBLOCK himself gets EWOULDBLOCK, as natively.
///
/// Locking: `state` is rank 2: while it is held, nothing is answered and no file is looked at.
final class LeaseWaitQueue: @unchecked Sendable {
    // Safe to share: `view` is set before the first request comes.
    nonisolated(unsafe) unowned var view: ViewFS!
    private let state = Lock(State())

    private struct State {
        var waiting: [UInt64: Waiter] = [:]
        var queues: [UInt32: Queue] = [:]
        /// Those that are being tried again, and since when they wait.
        var trying: [UInt64: Waiter] = [:]
        var next: Int64 = 0
    }

    private struct Waiter {
        let scope: UInt32
        /// When it is over at the latest; nil: never.
        let deadline: Int64?
        let call: AuditTrail.PendingCall?
    }

    /// Those of one scope, in turn. So many are tried at once; more as long as leases are given back.
    private struct Queue {
        var uniques: [UInt64] = []
        var batch = Queue.fewest
        /// Who was tried last and has not come back.
        var tried = 0
        static let fewest = 4
        static let most = 64
    }

    /// Nanoseconds between two tries for a scope.
    private static let pause: Int64 = 5_000_000

    /// How many requests wait.
    var count: Int { state.withLock { $0.waiting.count } }

    /// Puts a request aside that a lease is in the way of. Inside the scope. EAGAIN when it has waited for longer than a lease can last: then
    /// it was something else that said so.
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
        // It was interrupted before it could be found here.
        if !session.isParked(unique) { cancel(unique) }
        session.wakeMonitor()
    }

    /// A request is about to be answered because it was interrupted.
    func cancel(_ unique: UInt64) {
        if let waiter = state.withLock({ $0.waiting.removeValue(forKey: unique) }) { recordOutcome(waiter.call, error: EINTR) }
    }

    /// Tries again whom it is time for, and refuses who waits below a withdrawn grant. For the thread that watches workers. Whether anybody waits.
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

    private func takeTurns(_ state: inout State) -> [UInt64] {
        var again: [UInt64] = []
        for scope in state.queues.keys {
            guard var queue = state.queues[scope] else { continue }
            // Somebody got through: others may, too.
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

    /// Nanoseconds of `Clock.monotonic`. With some seconds more, for a machine that is busy; nil where leases are never taken away.
    private static func deadline() -> Int64? {
        guard let text = try? File.contents(of: "/proc/sys/fs/lease-break-time".utf8),
            let seconds = Int64(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self), radix: 10)
        else { return Clock.monotonic + 50_000_000_000 }
        return seconds <= 0 || seconds > 1_000_000 ? nil : Clock.monotonic + (seconds + 5) * 1_000_000_000
    }
}

extension ViewFS {
    /// What `truncate` says when a lease is in the way: no error number.
    static let leaseInTheWay = Int32.min

    /// Whether EAGAIN of an opening with O_NONBLOCK says that somebody has a lease on the file. On a filesystem with a server it may be the server's.
    func isLease(_ error: Int32, _ node: NodePointer) -> Bool { error == -EAGAIN && !node.pointee.usesCallerGroups }
}
