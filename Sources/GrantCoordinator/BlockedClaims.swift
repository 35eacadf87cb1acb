/// For each waiting claim one that blocks it, so that the end of a claim concerns only those that may be granted then.
struct BlockedClaims: Sendable {
    private var blocker: [ClaimID: ClaimID] = [:]
    private var blocked: [ClaimID: Set<ClaimID>] = [:]
    /// The claims that would overtake their blocker if it waited for a claim of their own claimant or purpose.
    private var overtaking: Set<ClaimID> = []
    /// The claims that may have become free.
    private var loose: Set<ClaimID> = []

    /// Records that a claim is blocked until the other one ends.
    mutating func block(_ id: ClaimID, by block: ClaimTable.Block) {
        forget(id)
        let other = block.claim
        if block.mayBeOvertaken { overtaking.insert(id) }
        blocker[id] = other
        blocked[other, default: []].insert(id)
    }

    /// Marks these claims for another check.
    mutating func loosen(_ ids: some Sequence<ClaimID>) { loose.formUnion(ids) }

    /// Marks the claims that may overtake others, because another claim waits now.
    mutating func loosenOvertaking() { loose.formUnion(overtaking) }

    /// Marks the claims that this one blocks.
    mutating func loosenBlocked(by id: ClaimID) {
        for other in blocked.removeValue(forKey: id) ?? [] {
            blocker[other] = nil
            loose.insert(other)
        }
    }

    /// Removes a claim that is granted or has ended.
    mutating func forget(_ id: ClaimID) {
        loose.remove(id)
        overtaking.remove(id)
        guard let other = blocker.removeValue(forKey: id) else { return }
        blocked[other]?.remove(id)
        if blocked[other]?.isEmpty == true { blocked[other] = nil }
    }

    /// Returns the marked claims in order of arrival.
    mutating func takeLoose() -> [ClaimID] {
        defer { loose = [] }
        return loose.sorted()
    }
}
