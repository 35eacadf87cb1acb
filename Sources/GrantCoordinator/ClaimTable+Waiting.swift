// The wait-for graph.
extension ClaimTable {
    /// The claims that block `id`. The result is empty if it is held.
    public func blockers(of id: ClaimID) -> [ClaimID] {
        guard let claim = self[id], !claim.isHeld else { return [] }
        return blockers(of: claim).map(\.id)
    }

    /// Whether any claim blocks this one.
    ///
    /// Checks held claims first, because nearly always one of them does.
    func isBlocked(_ claim: Claim) -> Bool {
        if claims.contains(where: { $0.isHeld && $0.conflicts(with: claim) }) { return true }
        var overtaken: Set<ClaimID>?
        for other in claims where !other.isHeld && other.id < claim.id && other.conflicts(with: claim) {
            if overtaken == nil { overtaken = waitersOnRelated(of: claim) }
            if overtaken?.contains(other.id) == false { return true }
        }
        return false
    }

    /// Whether a claimant is the other one, or was begun by it. `isAwaited`: and the other one waits for it.
    private func isPart(_ claimant: ClaimantID, of other: ClaimantID, isAwaited: Bool) -> Bool {
        var next = claimant
        while next != other {
            guard let origin = origins[next], origin.waits || !isAwaited else { return false }
            next = origin.claimant
        }
        return true
    }

    private func isRelated(_ claim: Claim, to other: Claim) -> Bool {
        isPart(claim.claimant, of: other.claimant, isAwaited: false) || (claim.purpose != nil && claim.purpose == other.purpose)
    }

    private func blockers(of claim: Claim) -> [Claim] {
        var overtaken: Set<ClaimID>?
        return claims.filter { other in
            guard other.isHeld || other.id < claim.id, other.conflicts(with: claim) else { return false }
            if other.isHeld { return true }
            if overtaken == nil { overtaken = waitersOnRelated(of: claim) }
            return overtaken?.contains(other.id) == false
        }
    }

    /// Claims that wait, directly or transitively, for this claimant or purpose.
    ///
    /// They wait for a claim that the claimant or the purpose holds, or for the answer of a
    /// presenter of this purpose.
    private func waitersOnRelated(of claim: Claim) -> Set<ClaimID> {
        let own = claims.filter { $0.isHeld && isRelated(claim, to: $0) }
        let asking = claims.filter { other in claim.purpose.map { other.awaited?.contains($0) == true } ?? false }
        if own.isEmpty && asking.isEmpty { return [] }
        var result = Set(asking.map(\.id))
        var causes = own + asking
        while let cause = causes.popLast() {
            for other in claims where !other.isHeld && other.id != claim.id && !result.contains(other.id) {
                // A held claim blocks all others, a waiting claim blocks later ones.
                guard cause.isHeld || cause.id < other.id, cause.conflicts(with: other) else { continue }
                result.insert(other.id)
                causes.append(other)
            }
        }
        return result
    }

    /// Whether granting `claim`, which waits, would need its own claimant to wait for itself.
    func wouldDeadlock(_ claim: Claim) -> Bool {
        // No claim waits for a claimant without other claims. This check suffices for most claims.
        let hasOthers = claims.contains { $0.id != claim.id && isPart(claim.claimant, of: $0.claimant, isAwaited: true) }
        guard hasOthers else { return false }
        var seen: Set<ClaimID> = []
        var asked: Set<ClaimantID> = []
        var open = [claim]
        while let waiting = open.popLast() {
            guard seen.insert(waiting.id).inserted else { continue }
            for blocker in blockers(of: waiting) {
                if isPart(claim.claimant, of: blocker.claimant, isAwaited: true) { return true }
                // A blocking claimant continues when all claims that it waits for are granted.
                if asked.insert(blocker.claimant).inserted {
                    open += claims.filter { !$0.isHeld && isPart($0.claimant, of: blocker.claimant, isAwaited: true) }
                }
            }
        }
        return false
    }
}
