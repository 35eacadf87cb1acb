// The wait-for graph.
extension ClaimTable {
    /// The claims that block `id`. The result is empty if it is held.
    public func blockers(of id: ClaimID) -> [ClaimID] {
        guard let claim = self[id], !claim.isHeld else { return [] }
        return blockers(of: claim).map(\.id)
    }

    /// A claim that blocks another one until it ends.
    struct Block {
        let claim: ClaimID
        /// The other one overtakes it if it waits for a related claim.
        let mayBeOvertaken: Bool
    }

    /// Returns a claim that blocks this one until it ends, or nil.
    ///
    /// Of the claims that wait, the newest one: so the end of a claim concerns the next one, and not all behind it.
    func blocker(of claim: Claim) -> Block? {
        let isOther = { (id: ClaimID) in
            guard id != claim.id else { return false }
            guard let purpose = claim.purpose else { return true }
            return self[id]?.purpose != purpose
        }
        let held = { index.held.newest(conflictingWith: claim.accesses, where: isOther).map { Block(claim: $0, mayBeOvertaken: false) } }
        guard index.hasRelated(lineage(of: claim.claimant), claim.purpose) else {
            let waiting = index.waiting.newest(conflictingWith: claim.accesses, before: claim.id, where: isOther)
            return waiting.map { Block(claim: $0, mayBeOvertaken: false) } ?? held()
        }
        // Nearly always a held one does. Otherwise those that it overtakes have to be found.
        if let held = held() { return held }
        var overtaken: Set<ClaimID>?
        let waiting = index.waiting.newest(conflictingWith: claim.accesses, before: claim.id) { other in
            guard isOther(other) else { return false }
            if overtaken == nil { overtaken = waitersOnRelated(of: claim) }
            return overtaken?.contains(other) == false
        }
        return waiting.map { Block(claim: $0, mayBeOvertaken: true) }
    }

    /// The claimant and those that have begun it, directly or not.
    func lineage(of claimant: ClaimantID) -> [ClaimantID] {
        var lineage = [claimant]
        while let origin = lineage.last.flatMap({ origins[$0] }) { lineage.append(origin.claimant) }
        return lineage
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
        guard hasOthers(claim) else { return false }
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

    /// Whether the claimant has other claims, or one that has begun it and waits for it has any.
    private func hasOthers(_ claim: Claim) -> Bool {
        var claimant = claim.claimant
        while true {
            if index.hasOther(claimant, than: claim.id) { return true }
            guard let origin = origins[claimant], origin.waits else { return false }
            claimant = origin.claimant
        }
    }
}
