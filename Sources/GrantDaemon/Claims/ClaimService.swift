import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewFS

/// The claims of one mount: the requests, the table, and what precedes granting a claim.
///
/// Looking files up may hang with their filesystem, so each claim has a thread for it, and no other
/// claim waits.
///
/// Locking: `state` is rank 2: while it is held, no file is looked up and nothing is sent to the kernel.
final class ClaimService: SessionHandler, Sendable {
    let files: ViewFS
    /// Whether a path on the host is in a grant of the view that is revoked or expired.
    let isRevoked: @Sendable ([UInt8]) -> Bool
    /// Whether claims on a grant are mandatory.
    let isMandatory: @Sendable (GrantID) -> Bool
    let state = Lock(State())
    /// How often rebinding was requested since it was last done.
    let rebindRequests = Lock(0)
    /// Called with presenters that did not answer in time or could not do what they were asked, on a thread of its own.
    let logFailures: @Sendable ([PresenterFailure]) -> Void
    /// Posted when the next time-out has become earlier.
    let timeoutWakeUp = Semaphore()

    struct State {
        var table = ClaimTable()
        var claims: [ClaimID: LiveClaim] = [:]
        /// By session and the client's number: the claim, or nil while it is being looked up.
        var numbers: [UInt64: [UInt64: ClaimID?]] = [:]
        /// Closed scopes. Their numbers are never reused.
        var withdrawn: Set<UInt32> = []
        var events = EventRing()
        var presenting = Presenting()
        /// The sessions that receive all events, by number.
        var subscribers: [UInt64: ControlSession] = [:]
        /// Claims that have ended and still bind operations through the mount.
        var toUnbind: [(id: ClaimID, claim: LiveClaim)] = []
        /// The number of claims that are being looked up.
        var lookups = 0
    }

    /// A claim that waits or is held.
    struct LiveClaim {
        let session: ControlSession
        let number: UInt64
        /// The claimant's id, which is the same in all mounts.
        let id: GrantID
        var parts: [ClaimPart]
        /// What the client is told when the claim is granted.
        let reach: [ItemReach]
        let holdMilliseconds: UInt32
        /// Whether the claimant was told that it may begin.
        var isGranted = false
        /// The scopes in which it binds operations through the mount.
        var bound: Set<UInt32> = []
        /// Whether presenters were asked, or there were none.
        var isPrepared = false
        /// The round of questions to presenters.
        var round: RoundID?
        /// The moves that the claimant has announced: from and to.
        var moves: Set<[UInt8]> = []
    }

    /// One item of a claim.
    struct ClaimPart {
        let target: ClaimTarget
        var access: ItemAccess
        let request: ItemRequest
        /// The scopes that lead to the item.
        var scopes: Set<UInt32>
    }

    /// The maximum of concurrent lookups.
    static let maxLookups = 256

    init(
        files: ViewFS, isRevoked: @escaping @Sendable ([UInt8]) -> Bool, isMandatory: @escaping @Sendable (GrantID) -> Bool,
        logFailures: @escaping @Sendable ([PresenterFailure]) -> Void
    ) {
        self.files = files
        self.logFailures = logFailures
        self.isRevoked = isRevoked
        self.isMandatory = isMandatory
    }

    // MARK: what clients say

    func received(_ request: SessionRequest, from session: ControlSession) {
        switch request {
        case .claim(let claim): lookUp(for: claim, session)
        case .endClaim(let number): releaseClaim(number, session)
        case .watch(let since): watch(since, session)
        case .moved(let number, let from, let to): moved(number, from, to, session)
        case .present(let presenter): present(presenter, session)
        case .endPresenting(let number): endPresenting(number, session)
        case .answer(let question, let isDone): answer(question, isDone, session)
        case .prepareRevocation(let number, let id, let grant, let time): prepareRevocation(number, id, grant, time, session)
        }
    }

    func ended(_ session: ControlSession) {
        let effect = state.withLock { state -> ClaimTable.Effect in
            state.subscribers[session.number] = nil
            var effect = endPresenters(of: session, &state)
            let ids = Set((state.numbers.removeValue(forKey: session.number) ?? [:]).values.compactMap { $0 })
            effect += drop(ids, &state)
            return effect
        }
        carryOut(effect)
    }

    private func releaseClaim(_ number: UInt64, _ session: ControlSession) {
        let effect = state.withLock { state -> ClaimTable.Effect in
            let id = state.numbers[session.number]?.removeValue(forKey: number)
            guard case .some(.some(let id)) = id else { return ClaimTable.Effect() }
            return drop([id], &state)
        }
        session.send(.refused(claim: number, .ended, text: ""))
        carryOut(effect)
    }

    /// A claimant has moved a claimed item.
    private func moved(_ number: UInt64, _ from: [UInt8], _ to: [UInt8], _ session: ControlSession) {
        state.withLock { state in
            guard case .some(.some(let id)) = state.numbers[session.number]?[number], let claim = state.claims[id],
                // Presenters trust the notice, so the item has to be claimed.
                claim.parts.contains(where: { $0.request.isWriting && MountTable.path(from, isAtOrBelow: $0.target.path) })
            else { return }
            state.claims[id]?.moves.formUnion([from, to])
            ClaimService.emit(.moved, from, newPath: to, pid: session.peer.pid, purpose: state.table[id]?.purpose, &state)
        }
        relocatePresenters()
    }

    /// Removes claims from all tables.
    ///
    /// Locking: call it with `state` held. Carry out the result without.
    func drop(_ ids: Set<ClaimID>, _ state: inout State) -> ClaimTable.Effect {
        if ids.isEmpty { return ClaimTable.Effect() }
        for id in ids {
            guard let claim = state.claims.removeValue(forKey: id) else { continue }
            state.numbers[claim.session.number]?[claim.number] = nil
            ClaimService.emit(.claimEnded, claim, &state)
            releasePresenters(claim, id, &state)
            if claim.bound.isEmpty { forget(id) } else { state.toUnbind.append((id, claim)) }
        }
        return state.table.remove(ids)
    }

    // MARK: what follows

    /// Carries out what a change means for other claims. Ended claims first release those that wait
    /// for them, so that none waits for a claim that is gone.
    func carryOut(_ effect: ClaimTable.Effect) {
        let ended = state.withLock { state in
            defer { state.toUnbind = [] }
            return state.toUnbind
        }
        for (id, claim) in ended {
            // The record keeps the descriptors open until it is removed.
            files.unbind(id.rawValue) { [self] in withExtendedLifetime(claim) { forget(id) } }
        }
        for id in effect.granted { grant(id) }
        checkWritten()
        reportFailures()
        let lost = state.withLock { state in
            effect.deadlocked.compactMap { id -> LiveClaim? in
                guard let claim = state.claims.removeValue(forKey: id) else { return nil }
                state.numbers[claim.session.number]?[claim.number] = nil
                releasePresenters(claim, id, &state)
                forget(id)
                return claim
            }
        }
        for claim in lost { claim.session.send(.refused(claim: claim.number, .deadlock, text: "")) }
    }

    /// Ends the claims that were reached through a closed scope, held or waiting, unless another scope leads there too.
    func withdrawn(_ scope: Scope) {
        let path = files.path(of: scope) ?? []
        // Their descriptors are closed without the lock.
        let (lost, effect, released) = state.withLock { state -> ([LiveClaim], ClaimTable.Effect, [ClaimTarget]) in
            ClaimService.emit(.revoked, path, pid: 0, text: scope.grant.description, &state)
            state.withdrawn.insert(scope.id.rawValue)
            var (effect, released) = release(scope, &state)
            var ids: Set<ClaimID> = []
            for (id, claim) in state.claims {
                for place in claim.parts.indices where claim.parts[place].scopes.contains(scope.id.rawValue) {
                    state.claims[id]?.parts[place].scopes.remove(scope.id.rawValue)
                    if state.claims[id]?.parts[place].scopes.isEmpty == true { ids.insert(id) }
                }
            }
            let lost = ids.compactMap { state.claims[$0] }
            effect += drop(ids, &state)
            return (lost, effect, released)
        }
        withExtendedLifetime(released) {}
        for claim in lost { claim.session.send(.refused(claim: claim.number, .revoked, text: "")) }
        carryOut(effect)
    }
}
