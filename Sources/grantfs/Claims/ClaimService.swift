import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewFS

/// The claims of one mount: who asks for them, what the table says, and what is done before one is granted.
///
/// Looking at files may hang with their filesystem, so each claim is looked for by a thread of its own, and nobody else waits for it.
///
/// Locking: `state` is rank 2: while it is held, no file is looked at, nothing is sent to the kernel.
final class ClaimService: SessionHandler, Sendable {
    let files: ViewFS
    /// Whether a path of the host lies in a grant of the view that is revoked or expired.
    let isRevoked: @Sendable ([UInt8]) -> Bool
    /// Whether claims on a grant bind whoever comes through the mount.
    let isMandatory: @Sendable (GrantID) -> Bool
    let state = Lock(State())
    /// How often it was asked to bind anew since that last was done.
    let reconsidering = Lock(0)
    /// Told of presenters whose answer was not waited for any longer, and of those that could not do what they were asked. Called on a thread of its own.
    let says: @Sendable ([PresenterFailure]) -> Void
    /// Posted when somebody is waited for until an earlier moment than before.
    let clock = Semaphore()

    struct State {
        var table = ClaimTable()
        var claims: [ClaimID: LiveClaim] = [:]
        /// Which claim is behind each number of each session; nil while it is being looked for.
        var numbers: [UInt64: [UInt64: ClaimID?]] = [:]
        /// Scopes that were closed. Their numbers never come again.
        var withdrawn: Set<UInt32> = []
        var events = EventRing()
        var presenting = Presenting()
        /// Those who want every event, by their session's number.
        var watchers: [UInt64: ControlSession] = [:]
        /// Claims that have ended and still bind those who come through the mount.
        var toUnbind: [(id: ClaimID, claim: LiveClaim)] = []
        /// Claims that are being looked for.
        var looking = 0
    }

    /// A claim that waits or is held.
    struct LiveClaim {
        let session: ControlSession
        let number: UInt64
        /// Its claimant's, in all mounts.
        let id: GrantID
        var parts: [ClaimPart]
        /// What the client is told when it is granted.
        let reach: [ItemReach]
        let holdMilliseconds: UInt32
        /// The claimant has been told that it may begin.
        var isGranted = false
        /// The scopes in which it binds whoever comes through the mount.
        var bound: Set<UInt32> = []
        /// Presenters were asked, or there was none to ask.
        var isPrepared = false
        /// What they were asked.
        var round: RoundID?
        /// What its claimant has said of moves: from where and to where.
        var moves: Set<[UInt8]> = []
    }

    /// One item of a claim.
    struct ClaimPart {
        let target: ClaimTarget
        var access: ItemAccess
        let request: ItemRequest
        /// The scopes by which it is reached.
        var scopes: Set<UInt32>
    }

    /// More claims looked for at once than any use has.
    static let mostLooking = 256

    init(
        files: ViewFS, isRevoked: @escaping @Sendable ([UInt8]) -> Bool, isMandatory: @escaping @Sendable (GrantID) -> Bool,
        says: @escaping @Sendable ([PresenterFailure]) -> Void
    ) {
        self.files = files
        self.says = says
        self.isRevoked = isRevoked
        self.isMandatory = isMandatory
    }

    // MARK: what clients say

    func received(_ request: SessionRequest, from session: ControlSession) {
        switch request {
        case .claim(let claim): look(for: claim, session)
        case .endClaim(let number): giveBack(number, session)
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
            state.watchers[session.number] = nil
            var effect = endPresenters(of: session, &state)
            let ids = Set((state.numbers.removeValue(forKey: session.number) ?? [:]).values.compactMap { $0 })
            effect += drop(ids, &state)
            return effect
        }
        carryOut(effect)
    }

    private func giveBack(_ number: UInt64, _ session: ControlSession) {
        let effect = state.withLock { state -> ClaimTable.Effect in
            let id = state.numbers[session.number]?.removeValue(forKey: number)
            guard case .some(.some(let id)) = id else { return ClaimTable.Effect() }
            return drop([id], &state)
        }
        session.send(.refused(claim: number, .ended, text: ""))
        carryOut(effect)
    }

    /// A claimant has moved what it has claimed.
    private func moved(_ number: UInt64, _ from: [UInt8], _ to: [UInt8], _ session: ControlSession) {
        state.withLock { state in
            guard case .some(.some(let id)) = state.numbers[session.number]?[number], let claim = state.claims[id],
                // Presenters believe it, so it has to be something that was claimed.
                claim.parts.contains(where: { $0.request.isWriting && MountTable.path(from, isAtOrBelow: $0.target.path) })
            else { return }
            state.claims[id]?.moves.formUnion([from, to])
            ClaimService.note(.moved, from, newPath: to, pid: session.peer.pid, purpose: state.table[id]?.purpose, &state)
        }
        seatAnew()
    }

    /// Takes claims out of all tables.
    ///
    /// Locking: call it with `state` held; what it returns is carried out without.
    func drop(_ ids: Set<ClaimID>, _ state: inout State) -> ClaimTable.Effect {
        if ids.isEmpty { return ClaimTable.Effect() }
        for id in ids {
            guard let claim = state.claims.removeValue(forKey: id) else { continue }
            state.numbers[claim.session.number]?[claim.number] = nil
            ClaimService.note(.claimEnded, claim, &state)
            letBack(claim, id, &state)
            if claim.bound.isEmpty { forget(id) } else { state.toUnbind.append((id, claim)) }
        }
        return state.table.remove(ids)
    }

    // MARK: what follows

    /// What a change made of other claims. Those that have ended let go of whoever waits for them first, so that nobody waits for what is gone.
    func carryOut(_ effect: ClaimTable.Effect) {
        let ended = state.withLock { state in
            defer { state.toUnbind = [] }
            return state.toUnbind
        }
        for (id, claim) in ended {
            // What is on record is open until it is not.
            files.unbind(id.rawValue) { [self] in withExtendedLifetime(claim) { forget(id) } }
        }
        for id in effect.granted { grant(id) }
        lookAtWritten()
        reportFailures()
        let lost = state.withLock { state in
            effect.deadlocked.compactMap { id -> LiveClaim? in
                guard let claim = state.claims.removeValue(forKey: id) else { return nil }
                state.numbers[claim.session.number]?[claim.number] = nil
                letBack(claim, id, &state)
                forget(id)
                return claim
            }
        }
        for claim in lost { claim.session.send(.refused(claim: claim.number, .deadlock, text: "")) }
    }

    /// Ends the claims that were reached by a scope which is closed, held or waiting, unless another scope leads there too.
    func withdrawn(_ scope: Scope) {
        let path = files.path(of: scope) ?? []
        // Their descriptors are closed when nobody holds the lock.
        let (lost, effect, released) = state.withLock { state -> ([LiveClaim], ClaimTable.Effect, [ClaimTarget]) in
            ClaimService.note(.revoked, path, pid: 0, text: scope.grant.description, &state)
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
