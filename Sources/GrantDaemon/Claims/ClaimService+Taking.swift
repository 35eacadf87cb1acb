import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// From the request for a claim to its entry in the table: the named items are looked up.
extension ClaimService {
    /// The maximum of claims on one connection.
    private static let maxClaimsPerConnection = 1_024

    func lookUp(for request: ClaimRequest, _ session: ControlSession) {
        let (isNew, isCrowded) = state.withLock { state -> (Bool, Bool) in
            if state.lookups >= Self.maxLookups { return (true, true) }
            var own = state.numbers[session.number] ?? [:]
            if own.count >= Self.maxClaimsPerConnection || own[request.number] != nil { return (false, false) }
            own[request.number] = .some(nil)
            state.numbers[session.number] = own
            state.lookups += 1
            return (true, false)
        }
        // A number that is in use is a protocol error.
        guard isNew else { return session.end() }
        if isCrowded {
            session.send(.refused(claim: request.number, .failed, text: "too many searches are in progress: a filesystem may hang"))
            return
        }
        _ = BackgroundTask { [self] in
            take(request, session)
            state.withLock { $0.lookups -= 1 }
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
            // The destination is claimed as well, so that no other claimant puts anything there.
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
        let moved = lookUpAgain(at: found)
        let (answer, effect, pids) = state.withLock { state -> (ClaimTable.Answer?, ClaimTable.Effect, [Int32]) in
            // It has been closed or withdrawn meanwhile.
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
                if case .waits = answer, let claim = state.claims[id] {
                    record(id, state)
                    ClaimService.emit(.claimWaits, claim, &state)
                }
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

    /// Claims on the same item share a target: a thousand waiters for one file cost one lookup.
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

    /// Looks up where the targets of other claims are now, if they can conflict with these: a renamed file stays on its filesystem.
    private func lookUpAgain(at parts: [ClaimPart]) -> [ObjectIdentifier: (ClaimTarget, ClaimedItem)] {
        let devices = Set(parts.flatMap { $0.access.item.devices })
        let targets = state.withLock { state in
            state.claims.values.flatMap(\.parts).filter { !$0.access.item.devices.isDisjoint(with: devices) }.map(\.target)
        }
        var result: [ObjectIdentifier: (ClaimTarget, ClaimedItem)] = [:]
        for target in targets where result[ObjectIdentifier(target)] == nil { result[ObjectIdentifier(target)] = (target, target.item()) }
        return result
    }

    /// Returns the accesses of claims whose items have changed.
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
}

extension ItemRequest {
    /// The kind of use in the rules for claims.
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
    /// The filesystems that it may be on.
    var devices: Set<UInt64> { Set(identities.map(\.first) + (place.map { [$0.directory.first] } ?? [])) }
}
