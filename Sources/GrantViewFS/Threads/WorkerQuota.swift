import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Prevents one grant or one user from occupying so many workers that others have none.
///
/// Requests are not counted. While workers are blocked, a thread that serves none checks every
/// millisecond how many workers are inside each scope. If there are more than remaining workers,
/// the scope's gate gets a bit that sends new requests here. These requests are parked like those
/// that wait for claims. They are served from the start when workers have left, or refused with the
/// grant.
///
/// Locking: `state` is rank 2. While it is held, no reply is sent and no file is accessed.
final class WorkerQuota: @unchecked Sendable {
    // Sendable: `view` and `hasSeveralUsers` are set before the first request.
    nonisolated(unsafe) unowned var view: ViewFS!
    /// Whether other users than the daemon's own may send requests. Users then have shares as well.
    nonisolated(unsafe) var hasSeveralUsers = false
    private let state = Lock(State())

    private struct State {
        var scopes: Set<UInt32> = []
        var users: Set<UInt32> = []
        /// By the kernel's number for the request, and each scope's in order of arrival.
        var waiting: [UInt64: Waiter] = [:]
        var queues: [UInt32: [UInt64]] = [:]
        /// Requests that are being served from the start and pass once.
        var called: Set<UInt64> = []
        /// Scopes whose gates have the congestion bit.
        var marked: Set<UInt32> = []

        var isQuiet: Bool { scopes.isEmpty && users.isEmpty && waiting.isEmpty }
    }

    private struct Waiter {
        let scope: UInt32
        let user: UInt32
        /// The error if the grant is withdrawn. It is nil for write-back, on which the gate
        /// decides.
        let refusal: Int32?
        let call: AuditTrail.PendingCall?
    }

    /// A user may occupy this many times the remaining workers. A scope may occupy as many as
    /// remain.
    private static let usersGenerosity = 4
    /// The limit of requests that are called for one scope at once.
    private static let mostCalled = 32

    /// The number of waiting requests.
    var count: Int { state.withLock { $0.waiting.count } }

    /// Whether a request that came into a congested scope must wait.
    func exceedsQuota(_ request: borrowing Request, in scope: UInt32) -> Bool {
        let (unique, user) = (request.unique, request.caller.uid)
        return state.withLock { state in
            if state.called.remove(unique) != nil { return false }
            return state.scopes.contains(scope) || state.users.contains(user)
        }
    }

    /// Parks a request until there is room. Its worker has left the scope.
    ///
    /// `refusal`: see `Waiter`. `call`: recorded if the request is refused.
    func wait(_ request: consuming Request, in scope: UInt32, refusal: Int32?, _ call: AuditTrail.PendingCall?) {
        guard let session = view.session else { return }
        let user = request.caller.uid
        let unique: UInt64
        switch session.park(request, scope: scope, isWriteBack: refusal == nil) {
        case .parked(let number): unique = number
        case .answered(let error): return recordOutcome(call, error: error)
        }
        state.withLock { state in
            state.waiting[unique] = Waiter(scope: scope, user: user, refusal: refusal, call: call)
            state.queues[scope, default: []].append(unique)
        }
        // It was interrupted before it was in the table.
        if !session.isParked(unique) { cancel(unique) }
        session.wakeMonitor()
    }

    /// Removes a request that is about to be answered because it was interrupted.
    func cancel(_ unique: UInt64) {
        if let waiter = state.withLock({ $0.waiting.removeValue(forKey: unique) }) { recordOutcome(waiter.call, error: EINTR) }
    }

    private func recordOutcome(_ call: AuditTrail.PendingCall?, error: Int32) {
        if let call { view.audit?.record(call, error: error) }
    }

    // MARK: sampling

    /// The workers inside each scope, and their users.
    private struct Sample {
        var scopes: [UInt32: Int] = [:]
        var users: [UInt32: Int] = [:]
        /// Workers that are in no scope, or could be made.
        var left: Int

        init(_ view: ViewFS, _ session: Session) {
            left = session.availableWorkers
            view.coordinator.forEachInside(upTo: ViewFS.workerLimit) { slot, scope in
                scopes[scope.rawValue, default: 0] += 1
                users[session.user(ofSlot: slot), default: 0] += 1
                left -= 1
            }
        }
    }

    /// Counts workers, and calls the requests for which there is room.
    ///
    /// Returns whether any scope or user is congested. Called by the thread that monitors workers.
    func poll() -> Bool {
        guard let session = view.session else { return false }
        let sample = Sample(view, session)
        let open = view.names.open.map(\.scope.id.rawValue)
        var refused: [(unique: UInt64, error: Int32, call: AuditTrail.PendingCall?)] = []
        let (called, isCongested) = state.withLock { state -> ([UInt64], Bool) in
            update(sample, &state)
            mark(state.users.isEmpty ? state.scopes : state.scopes.union(open), &state)
            var called: [UInt64] = []
            for scope in state.queues.keys { called += call(from: scope, sample, &state, &refused) }
            if state.isQuiet { state.called = [] }
            return (called, !state.isQuiet)
        }
        if !called.isEmpty { session.resume(called) }
        // A withdrawal does not wait for the log.
        for (unique, error, call) in refused {
            recordOutcome(call, error: error)
            session.answer(parked: unique, error: error)
        }
        return isCongested
    }

    private func update(_ sample: Sample, _ state: inout State) {
        for (scope, count) in sample.scopes where count > sample.left { state.scopes.insert(scope) }
        state.scopes = state.scopes.filter { scope in
            state.queues[scope] != nil || sample.scopes[scope, default: 0] * 2 > sample.left
        }
        guard hasSeveralUsers else { return }
        for (user, count) in sample.users where count > Self.usersGenerosity * sample.left { state.users.insert(user) }
        let waiting = state.users.isEmpty ? [] : Set(state.waiting.values.map(\.user))
        state.users = state.users.filter { user in
            waiting.contains(user) || sample.users[user, default: 0] * 2 > Self.usersGenerosity * sample.left
        }
    }

    private func mark(_ wanted: Set<UInt32>, _ state: inout State) {
        if wanted == state.marked { return }
        for scope in wanted.subtracting(state.marked) { view.coordinator.setCongested(ScopeID(rawValue: scope), true) }
        for scope in state.marked.subtracting(wanted) { view.coordinator.setCongested(ScopeID(rawValue: scope), false) }
        state.marked = wanted
    }

    /// Takes requests out of a scope's queue: those with room, and those that its gate refuses.
    private func call(
        from scope: UInt32, _ sample: Sample, _ state: inout State,
        _ refused: inout [(unique: UInt64, error: Int32, call: AuditTrail.PendingCall?)]
    ) -> [UInt64] {
        let gate = view.coordinator.gate(ScopeID(rawValue: scope)).pointee.refused
        // Half of the remaining room, so that samples taken too early do not add up to too many.
        var room = min(Self.mostCalled, (sample.left - sample.scopes[scope, default: 0]) / 2)
        var roomOfUsers: [UInt32: Int] = [:]
        var called: [UInt64] = []
        var rest: [UInt64] = []
        for unique in state.queues[scope] ?? [] {
            guard let waiter = state.waiting[unique] else { continue }
            if let error = waiter.refusal, gate.contains(.read) {
                state.waiting[unique] = nil
                refused.append((unique, error, waiter.call))
                continue
            }
            // Requests that the gate refuses end immediately.
            if waiter.refusal != nil || !gate.contains(.cacheWrite) {
                let ofUser = state.users.contains(waiter.user) ? sample.users[waiter.user, default: 0] : 0
                let roomOfUser = roomOfUsers[waiter.user] ?? (Self.usersGenerosity * sample.left - ofUser) / 2
                guard room > 0, roomOfUser > 0 else {
                    rest.append(unique)
                    continue
                }
                room -= 1
                roomOfUsers[waiter.user] = roomOfUser - 1
            }
            state.waiting[unique] = nil
            state.called.insert(unique)
            called.append(unique)
        }
        state.queues[scope] = rest.isEmpty ? nil : rest
        return called
    }
}
