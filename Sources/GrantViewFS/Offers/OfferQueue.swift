import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

/// Requests in offered scopes, which wait without a worker for a person's answer.
///
/// The gate of an offered scope refuses everything, so a request that does not come here fails with
/// EACCES. The first one that comes is a question. If nobody is there to put it to a person, requests
/// fail. After a question that took too long they fail until the store says otherwise, so a program
/// causes one question for each offer at most.
///
/// Locking: `state` is rank 2. While it is held, no file is accessed and no reply is sent.
public final class OfferQueue: @unchecked Sendable {
    // Sendable: `view` is set before the first request.
    nonisolated(unsafe) unowned var view: ViewFS!
    private let state = Lock(State())

    /// A program uses an offered directory for the first time.
    public struct Question: Sendable, Equatable {
        /// Ascending, also from one daemon of a mount to the next.
        public let number: UInt64
        public let scope: UInt32
        public let thread: Int32
        let deadline: Int64
    }

    private struct Waiter {
        let scope: UInt32
        let caller: Caller
        /// Recorded if the request is refused.
        let call: AuditTrail.PendingCall?
        /// Whether its thread has received a signal, which the kernel reports once.
        var isSignalled = false
    }

    private struct State {
        /// The requests that wait, by the kernel's numbers.
        var waiting: [UInt64: Waiter] = [:]
        /// The open questions, by scope.
        var questions: [UInt32: Question] = [:]
        /// The scopes about which nobody is asked again.
        var isOver = Set<UInt32>()
        var last: UInt64 = 0
        /// Those who wait for a question.
        var listeners: [GrantSystem.Semaphore] = []
        /// When somebody last waited for a question, by `Clock.monotonic`.
        var listened: Int64?

        mutating func take(_ isMeant: (Waiter) -> Bool) -> [UInt64: Waiter] {
            let found = waiting.filter { isMeant($0.value) }
            for unique in found.keys { waiting[unique] = nil }
            return found
        }

        /// Whether somebody puts questions to a person.
        var isAttended: Bool { !listeners.isEmpty || (listened.map { Clock.monotonic - $0 < OfferQueue.absence } ?? false) }
    }

    /// The most requests that wait in a mount. Others fail, except for the first of each scope, which is its question.
    private static let mostWaiting = 1024
    /// How long a question may take.
    private static let patience = InjectedFault.answerSeconds.number.map { Int64(clamping: $0) &* 1_000_000_000 } ?? 300_000_000_000
    /// Those who ask look for the next question at once. After a longer absence they are gone.
    private static let absence: Int64 = 3_000_000_000

    // MARK: requests

    /// Parks a request until there is an answer, or refuses it.
    func park(_ request: consuming Request, _ scope: UInt32) {
        let caller = request.caller
        let call = view.audit?.call(request).map { AuditTrail.PendingCall(call: $0, caller: request.caller, scope: scope, path: nil) }
        guard let session = view.session, isAnswerable(scope) else {
            note(refused: Waiter(scope: scope, caller: caller, call: call))
            request.reply(error: EACCES)
            return
        }
        let unique: UInt64
        switch session.park(request, scope: scope, otherwise: EACCES) {
        case .parked(let number): unique = number
        case .answered: return
        }
        let listeners = state.withLock { state -> [GrantSystem.Semaphore] in
            state.waiting[unique] = Waiter(scope: scope, caller: caller, call: call)
            if state.questions[scope] != nil { return [] }
            state.last = max(state.last + 1, UInt64(bitPattern: Clock.monotonic))
            state.questions[scope] = Question(
                number: state.last, scope: scope, thread: caller.pid, deadline: Clock.monotonic + Self.patience)
            return state.listeners
        }
        for listener in listeners { listener.post() }
        // It was interrupted before it was in the table.
        if !session.isParked(unique) { return cancel(unique) }
        // An answer changes the gate and then looks for the waiting requests: one of the two sees the other.
        let isOffered = view.coordinator.isOffered(ScopeID(rawValue: scope))
        let isOver = state.withLock { state in
            let isOver = !isOffered || state.isOver.contains(scope)
            if isOver {
                state.questions[scope] = nil
                state.waiting[unique] = nil
            }
            return isOver
        }
        if isOver { session.resume([unique]) }
    }

    /// Whether somebody is there to answer about the scope, and there is room for the request.
    private func isAnswerable(_ scope: UInt32) -> Bool {
        state.withLock { state in
            let hasRoom = state.waiting.count < Self.mostWaiting || state.questions[scope] == nil
            return !state.isOver.contains(scope) && hasRoom && state.isAttended
        }
    }

    private func cancel(_ unique: UInt64) { state.withLock { $0.waiting[unique] = nil } }

    /// Whether a request goes on waiting although its thread has received a signal: one that does not end its process.
    ///
    /// System calls on a disk's files do not end with EINTR either. If not, the request is about to be answered.
    func survives(_ unique: UInt64) -> Bool {
        guard let thread = state.withLock({ $0.waiting[unique]?.caller.pid }) else { return false }
        let isEnding = ProcessAncestry.isBeingKilled(thread)
        state.withLock { if isEnding { $0.waiting[unique] = nil } else { $0.waiting[unique]?.isSignalled = true } }
        return !isEnding
    }

    private func note(refused waiter: Waiter) {
        view.countDenial(waiter.caller, in: waiter.scope)
        if let call = waiter.call { view.audit?.record(call, error: EACCES) }
    }

    // MARK: answers

    /// Serves the scope's requests again, because its gate was opened.
    func resume(_ scope: Scope) { view.session?.resume(take(scope.id.rawValue).map(\.key).sorted()) }

    /// Refuses the scope's requests, because it is being withdrawn.
    func refuse(_ scope: Scope) { refuse(take(scope.id.rawValue)) }

    private func refuse(_ waiters: [UInt64: Waiter]) {
        guard let session = view.session else { return }
        for (unique, waiter) in waiters {
            session.answer(parked: unique, error: EACCES)
            note(refused: waiter)
        }
    }

    private func take(_ scope: UInt32) -> [UInt64: Waiter] {
        state.withLock { state in
            state.questions[scope] = nil
            return state.take { $0.scope == scope }
        }
    }

    /// Refuses the requests whose questions had no answer in time, or whose asker is gone, and ends those of killed processes.
    /// Called once a second.
    public func expire() {
        let now = Clock.monotonic
        let (late, signalled) = state.withLock { state in
            let isAttended = state.isAttended
            let late = state.questions.values.filter { !isAttended || $0.deadline <= now }.map(\.scope)
            for scope in late {
                state.questions[scope] = nil
                // Nobody has asked a person without an asker.
                if isAttended { state.isOver.insert(scope) }
            }
            return (state.take { late.contains($0.scope) }, state.waiting.filter(\.value.isSignalled))
        }
        refuse(late)
        for (unique, waiter) in signalled where ProcessAncestry.isBeingKilled(waiter.caller.pid) {
            cancel(unique)
            view.session?.answer(parked: unique, error: EINTR)
        }
    }

    // MARK: questions

    /// Requests wait for those who asked for the daemon before.
    func awaitAskers() { state.withLock { $0.listened = Clock.monotonic } }

    /// Returns the open questions after that number, as soon as there is one, or at the deadline (`Clock.monotonic`).
    public func questions(after number: UInt64, until deadline: Int64) -> [Question] {
        let semaphore = GrantSystem.Semaphore()
        state.withLock { state in
            state.listeners.append(semaphore)
            state.listened = Clock.monotonic
        }
        defer {
            state.withLock { state in
                state.listeners.removeAll { $0 === semaphore }
                state.listened = Clock.monotonic
            }
        }
        while true {
            let found = state.withLock { state in state.questions.values.filter { $0.number > number } }
            if !found.isEmpty || Clock.monotonic >= deadline { return found.sorted { $0.number < $1.number } }
            _ = semaphore.wait(until: deadline)
        }
    }
}
