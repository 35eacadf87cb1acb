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
            return table.remove(id)
        }
    }

    private final class Waiter: Sendable {
        enum Outcome { case granted, deadlock, cancelled }
        let outcome = Lock<Outcome?>(nil)
        let woken = Semaphore()

        /// Only the first outcome counts.
        func end(_ new: Outcome) {
            outcome.withLock { if $0 == nil { $0 = new } }
            woken.post()
        }
    }

    private let state = Lock(State())

    /// Waits until all accesses are granted together. `deadline` is in nanoseconds of `Clock.monotonic`; nil waits for ever.
    func take(
        _ accesses: [ItemAccess], for work: CoordinatedWork, purpose: String?, until deadline: Int64?, cancellation: Cancellation?
    ) throws(CoordinationError) -> ClaimID {
        let waiter = Waiter()
        let answer = state.withLock { state in
            let answer = state.add(accesses, work, purpose)
            if case .waits(let id) = answer { state.waiting[id] = waiter }
            return answer
        }
        switch answer {
        case .granted(let id): return id
        case .deadlock: throw .deadlock
        case .waits(let id):
            let registration = cancellation?.whenCancelled { waiter.end(.cancelled) }
            defer { if let registration { cancellation?.forget(registration) } }
            return try wait(for: id, waiter, until: deadline)
        }
    }

    private func wait(for id: ClaimID, _ waiter: Waiter, until deadline: Int64?) throws(CoordinationError) -> ClaimID {
        while true {
            if let outcome = waiter.outcome.withLock({ $0 }) {
                switch outcome {
                case .granted: return id
                case .deadlock: throw .deadlock
                case .cancelled:
                    end(id)
                    throw .cancelled
                }
            }
            guard let deadline else {
                waiter.woken.wait()
                continue
            }
            let left = deadline - Clock.monotonic
            if left <= 0 {
                end(id)
                throw .timedOut
            }
            waiter.woken.waitForAny(within: Int(min(left / 1_000_000 + 1, 60_000)))
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
