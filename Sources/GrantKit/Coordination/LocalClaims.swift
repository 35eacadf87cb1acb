import Foundation
import GrantCoordinator
import GrantAdministration
import GrantModel
import GrantSystem

/// The claims within this process, on any files, granted or not, by the same rules as in the daemons.
///
/// It coordinates the threads of a program where no daemon does, and detects deadlocks between them.
///
/// Locking: one lock around the table, held for its operations only. Waits happen outside of it.
final class LocalClaims: Sendable {
    static let process = LocalClaims()

    private struct State {
        var table = ClaimTable()
        var waiting: [ClaimID: Waiter] = [:]

        mutating func add(_ accesses: [ItemAccess], _ work: CoordinatedWork, _ purpose: String?) -> ClaimTable.Answer {
            if let origin = work.origin { table.origins[work.id] = origin }
            let answer = table.add(accesses, claimant: work.id, purpose: purpose.map { Array($0.utf8) })
            if answer == .deadlock { table.origins[work.id] = nil }
            return answer
        }

        mutating func remove(_ id: ClaimID) -> ClaimTable.Effect {
            // Each work has one claim.
            if let ended = table[id] { table.origins[ended.claimant] = nil }
            let effect = table.remove(id)
            for id in effect.deadlocked {
                if let work = waiting[id]?.work { table.origins[work] = nil }
            }
            return effect
        }
    }

    private enum Outcome { case granted, deadlock, cancelled, timedOut }

    private final class Waiter: Sendable {
        let work: ClaimantID
        private let state = Lock<(outcome: Outcome?, answer: (@Sendable (Outcome) -> Void)?)>((nil, nil))

        init(_ work: ClaimantID) { self.work = work }

        /// Only the first outcome counts.
        func end(_ new: Outcome) {
            let answer = state.withLock { state -> (@Sendable (Outcome) -> Void)? in
                if state.outcome != nil { return nil }
                state.outcome = new
                defer { state.answer = nil }
                return state.answer
            }
            answer?(new)
        }

        /// Calls `answer` with the outcome, once.
        func listen(_ answer: @escaping @Sendable (Outcome) -> Void) {
            let outcome = state.withLock { state in
                if state.outcome == nil { state.answer = answer }
                return state.outcome
            }
            if let outcome { answer(outcome) }
        }
    }

    private let state = Lock(State())

    /// Waits until all accesses are granted together. `deadline` is in nanoseconds of
    /// `Clock.monotonic`. The wait has no limit if it is nil.
    func take(
        _ accesses: [ItemAccess], for work: CoordinatedWork, purpose: String?, until deadline: Int64?, cancellation: Cancellation?
    ) throws(CoordinationError) -> ClaimID {
        let (result, answered) = (Lock<Result<ClaimID, CoordinationError>?>(nil), Semaphore())
        request(accesses, for: work, purpose: purpose, until: deadline, cancellation: cancellation) { answer in
            result.withLock { $0 = answer }
            answered.post()
        }
        answered.wait()
        return try result.withLock { $0 ?? .failure(.cancelled) }.get()
    }

    /// The same without a thread that waits. `answer` is called once, on the thread that ends the wait: it must not take long.
    func request(
        _ accesses: [ItemAccess], for work: CoordinatedWork, purpose: String?, until deadline: Int64?, cancellation: Cancellation?,
        _ answer: @escaping @Sendable (Result<ClaimID, CoordinationError>) -> Void
    ) {
        let waiter = Waiter(work.id)
        let added = state.withLock { state in
            let added = state.add(accesses, work, purpose)
            if case .waits(let id) = added { state.waiting[id] = waiter }
            return added
        }
        switch added {
        case .granted(let id): answer(.success(id))
        case .deadlock: answer(.failure(.deadlock))
        case .waits(let id):
            let registration = cancellation?.whenCancelled { waiter.end(.cancelled) }
            if let deadline {
                let left = Int(clamping: max(0, deadline - Clock.monotonic))
                DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(left)) { waiter.end(.timedOut) }
            }
            waiter.listen { [self] outcome in
                if let registration { cancellation?.forget(registration) }
                switch outcome {
                case .granted: return answer(.success(id))
                case .deadlock: return answer(.failure(.deadlock))
                case .cancelled, .timedOut: break
                }
                end(id)
                answer(.failure(outcome == .cancelled ? .cancelled : .timedOut))
            }
        }
    }

    /// Returns how many claims wait for the item, or for something above or below it.
    func waiting(for item: ClaimedItem) -> Int {
        state.withLock { state in
            state.table.claims.count { !$0.isHeld && $0.accesses.contains { $0.item.overlaps(item) } }
        }
    }

    /// Returns how many claims on the item, or on something above or below it, are held.
    func held(of item: ClaimedItem) -> Int {
        state.withLock { state in
            state.table.claims.count { $0.isHeld && $0.accesses.contains { $0.item.overlaps(item) } }
        }
    }

    /// Ends a claim, held or waiting.
    func end(_ id: ClaimID) {
        let (granted, deadlocked) = state.withLock { state in
            state.waiting[id] = nil
            let effect = state.remove(id)
            return (
                effect.granted.compactMap { state.waiting.removeValue(forKey: $0) },
                effect.deadlocked.compactMap { state.waiting.removeValue(forKey: $0) }
            )
        }
        for waiter in granted { waiter.end(.granted) }
        for waiter in deadlocked { waiter.end(.deadlock) }
    }
}

extension ClaimantID {
    /// The same 128 bits as in the daemons.
    init(_ claimant: Claimant) {
        // A claimant's description is its id.
        let id = GrantID(claimant.description) ?? GrantID(high: 0, low: 0)
        self.init(high: id.high, low: id.low)
    }
}
