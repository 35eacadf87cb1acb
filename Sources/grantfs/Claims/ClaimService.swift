import Control
import Coordinator
import Glibc
import GrantModel
import LinuxFS
import Synchronization
import ViewFS

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
        var toUnbind: [ClaimID] = []
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

    /// More claims on one connection, or looked for at once, than any use has.
    private static let mostOnConnection = 1_024
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
            if !claim.bound.isEmpty { state.toUnbind.append(id) }
        }
        return state.table.remove(ids)
    }

    // MARK: taking one

    private func look(for request: ClaimRequest, _ session: ControlSession) {
        let (isNew, isCrowded) = state.withLock { state -> (Bool, Bool) in
            if state.looking >= Self.mostLooking { return (true, true) }
            var own = state.numbers[session.number] ?? [:]
            if own.count >= Self.mostOnConnection || own[request.number] != nil { return (false, false) }
            own[request.number] = .some(nil)
            state.numbers[session.number] = own
            state.looking += 1
            return (true, false)
        }
        // A number that is in use is nonsense.
        guard isNew else { return session.end() }
        if isCrowded {
            session.send(.refused(claim: request.number, .failed, text: "too many claims are being looked for; a filesystem may hang"))
            return
        }
        _ = BackgroundTask { [self] in
            take(request, session)
            state.withLock { $0.looking -= 1 }
        }
    }

    private func take(_ request: ClaimRequest, _ session: ControlSession) {
        var (parts, reach) = ([ClaimPart](), [ItemReach]())
        for item in request.items {
            switch find(item) {
            case .success(let found):
                parts += found
                reach.append(.reached)
            case .failure(.outside): reach.append(isRevoked(item.path) ? .revoked : .outside)
            case .failure(.system(let error)):
                return refuse(request, session, .failed, "“\(String(decoding: item.path, as: UTF8.self))”: \(error)")
            }
        }
        if parts.isEmpty { return refuse(request, session, reach.contains(.revoked) ? .revoked : .outside, "") }
        let meeting = files.scopes(meeting: parts.map(\.access.item))
        for place in parts.indices { parts[place].scopes = Set(meeting[place].map(\.id.rawValue)) }
        add(request, session, parts, reach)
    }

    private func find(_ item: ItemRequest) -> Result<[ClaimPart], TargetFailure> {
        do throws(TargetFailure) {
            var parts = [try part(item.path, item)]
            // Where it goes is claimed with it, so that nobody else puts anything there.
            if let newPath = item.newPath { parts.append(try part(newPath, item)) }
            return .success(parts)
        } catch {
            return .failure(error)
        }
    }

    private func part(_ path: [UInt8], _ item: ItemRequest) throws(TargetFailure) -> ClaimPart {
        let target = try files.target(path)
        return ClaimPart(target: target, access: ItemAccess(target.item(), item.use), request: item, scopes: [])
    }

    private func add(_ request: ClaimRequest, _ session: ControlSession, _ found: [ClaimPart], _ reach: [ItemReach]) {
        let moved = lookAgain(at: found)
        let (answer, effect, pids) = state.withLock { state -> (ClaimTable.Answer?, ClaimTable.Effect, [Int32]) in
            // Gone meanwhile, or given back.
            guard state.numbers[session.number]?[request.number] != nil else { return (nil, ClaimTable.Effect(), []) }
            var parts = found
            for place in parts.indices { parts[place].scopes.subtract(state.withdrawn) }
            if parts.contains(where: { $0.scopes.isEmpty }) {
                session.send(.refused(claim: request.number, .revoked, text: ""))
                state.numbers[session.number]?[request.number] = nil
                return (nil, ClaimTable.Effect(), [])
            }
            let effect = state.table.update(accesses(of: moved, &state))
            share(&parts, state)
            let answer = state.table.add(
                parts.map(\.access), claimant: ClaimantID(high: request.claimant.high, low: request.claimant.low), purpose: request.purpose)
            switch answer {
            case .granted(let id), .waits(let id):
                state.numbers[session.number]?[request.number] = .some(id)
                state.claims[id] = LiveClaim(
                    session: session, number: request.number, id: request.id, parts: parts, reach: reach,
                    holdMilliseconds: request.holdMilliseconds)
                if case .waits = answer, let claim = state.claims[id] { ClaimService.note(.claimWaits, claim, &state) }
                let pids = Set(state.table.blockers(of: id).compactMap { state.claims[$0]?.session.peer.pid }).sorted()
                return (answer, effect, Array(pids.prefix(64)))
            case .deadlock:
                state.numbers[session.number]?[request.number] = nil
                return (answer, effect, [])
            }
        }
        carryOut(effect)
        switch answer {
        case .granted(let id): grant(id)
        case .waits: session.send(.waits(claim: request.number, pids: pids))
        case .deadlock: session.send(.refused(claim: request.number, .deadlock, text: ""))
        case nil: break
        }
    }

    /// One target serves all who claim the same: a thousand who wait for a file cost one look at it.
    private func share(_ parts: inout [ClaimPart], _ state: State) {
        for place in parts.indices {
            let part = parts[place]
            let known = state.claims.values.lazy.flatMap(\.parts).first {
                $0.target.path == part.target.path && $0.access.item == part.access.item
            }
            guard let known else { continue }
            parts[place] = ClaimPart(target: known.target, access: part.access, request: part.request, scopes: part.scopes)
        }
    }

    private func refuse(_ request: ClaimRequest, _ session: ControlSession, _ refusal: ClaimRefusal, _ text: String) {
        state.withLock { $0.numbers[session.number]?[request.number] = nil }
        session.send(.refused(claim: request.number, refusal, text: text))
    }

    // MARK: files that were renamed

    /// Where the targets of other claims are now, as far as they can meet these: what is renamed stays on its filesystem.
    private func lookAgain(at parts: [ClaimPart]) -> [ObjectIdentifier: (ClaimTarget, ClaimedItem)] {
        let devices = Set(parts.flatMap { $0.access.item.devices })
        let targets = state.withLock { state in
            state.claims.values.flatMap(\.parts).filter { !$0.access.item.devices.isDisjoint(with: devices) }.map(\.target)
        }
        var result: [ObjectIdentifier: (ClaimTarget, ClaimedItem)] = [:]
        for target in targets where result[ObjectIdentifier(target)] == nil { result[ObjectIdentifier(target)] = (target, target.item()) }
        return result
    }

    /// The accesses of claims whose items have changed.
    private func accesses(
        of moved: [ObjectIdentifier: (ClaimTarget, ClaimedItem)], _ state: inout State
    ) -> [ClaimID: [ItemAccess]] {
        var changed: [ClaimID: [ItemAccess]] = [:]
        for (id, claim) in state.claims {
            var parts = claim.parts
            var isOther = false
            for place in parts.indices {
                guard let (_, item) = moved[ObjectIdentifier(parts[place].target)], item != parts[place].access.item else { continue }
                parts[place].access.item = item
                isOther = true
            }
            guard isOther else { continue }
            state.claims[id]?.parts = parts
            changed[id] = parts.map(\.access)
        }
        return changed
    }

    // MARK: what follows

    /// What a change made of other claims. Those that have ended let go of whoever waits for them first, so that nobody waits for what is gone.
    func carryOut(_ effect: ClaimTable.Effect) {
        let ended = state.withLock { state in
            defer { state.toUnbind = [] }
            return state.toUnbind
        }
        for id in ended { files.unbind(id.rawValue) }
        for id in effect.granted { grant(id) }
        lookAtWritten()
        reportFailures()
        let lost = state.withLock { state in
            effect.deadlocked.compactMap { id -> LiveClaim? in
                guard let claim = state.claims.removeValue(forKey: id) else { return nil }
                state.numbers[claim.session.number]?[claim.number] = nil
                letBack(claim, id, &state)
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

extension ItemRequest {
    /// What the rules of claims make of it.
    var use: ItemUse {
        switch (isWriting, intent) {
        case (false, .metadata): .readMetadata
        case (false, _): .readContent
        case (true, .metadata): .writeMetadata
        case (true, .deleting), (true, .moving), (true, .replacing): .displace
        case (true, .content), (true, .merging), (true, .uploading): .writeContent
        }
    }
}

extension ClaimedItem {
    /// The filesystems that it may lie on.
    var devices: Set<UInt64> { Set(identities.map(\.first) + (place.map { [$0.directory.first] } ?? [])) }
}
