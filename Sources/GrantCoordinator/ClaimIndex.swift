/// Finds the claims of a table by item, claimant and purpose.
struct ClaimIndex: Sendable {
    private(set) var held = ItemIndex()
    private(set) var waiting = ItemIndex()
    /// Held and waiting ones.
    private var ofClaimant: [ClaimantID: Set<ClaimID>] = [:]
    /// How many claims each claimant holds.
    private var heldBy: [ClaimantID: Int] = [:]
    private var heldFor: [[UInt8]: Int] = [:]
    /// How many claims wait for presenters of a purpose.
    private var awaiting: [[UInt8]: Int] = [:]
    /// The waiting claims of a claimant and of all that it has begun, directly or not.
    private var waitingUnder: [ClaimantID: Set<ClaimID>] = [:]
    private var waitingFor: [[UInt8]: Set<ClaimID>] = [:]
    /// The claimant of each waiting claim, and those that have begun it, as they were when it arrived.
    private var lineages: [ClaimID: [ClaimantID]] = [:]

    mutating func insert(_ claim: ClaimTable.Claim, lineage: [ClaimantID]) {
        ofClaimant[claim.claimant, default: []].insert(claim.id)
        if claim.isHeld { insertHeld(claim) } else { insertWaiting(claim, lineage) }
        for purpose in claim.awaited ?? [] { awaiting[purpose, default: 0] += 1 }
    }

    mutating func remove(_ claim: ClaimTable.Claim) {
        ofClaimant.remove(claim.id, at: claim.claimant)
        if claim.isHeld { removeHeld(claim) } else { removeWaiting(claim) }
        for purpose in claim.awaited ?? [] { awaiting.decrease(purpose) }
    }

    /// Whether a claim of the claimant, or of another one for the purpose, is held or waits for presenters of the purpose.
    func hasRelated(_ lineage: [ClaimantID], _ purpose: [UInt8]?) -> Bool {
        lineage.contains { heldBy[$0] != nil } || purpose.map { heldFor[$0] != nil || awaiting[$0] != nil } ?? false
    }

    /// Whether the claimant has another claim.
    func hasOther(_ claimant: ClaimantID, than id: ClaimID) -> Bool { ofClaimant[claimant]?.contains { $0 != id } ?? false }

    func waitingClaims(under claimant: ClaimantID) -> Set<ClaimID> { waitingUnder[claimant] ?? [] }
    func waitingClaims(for purpose: [UInt8]) -> Set<ClaimID> { waitingFor[purpose] ?? [] }

    private mutating func insertHeld(_ claim: ClaimTable.Claim) {
        held.insert(claim.id, claim.accesses)
        heldBy[claim.claimant, default: 0] += 1
        if let purpose = claim.purpose { heldFor[purpose, default: 0] += 1 }
    }

    private mutating func removeHeld(_ claim: ClaimTable.Claim) {
        held.remove(claim.id, claim.accesses)
        heldBy.decrease(claim.claimant)
        if let purpose = claim.purpose { heldFor.decrease(purpose) }
    }

    private mutating func insertWaiting(_ claim: ClaimTable.Claim, _ lineage: [ClaimantID]) {
        waiting.insert(claim.id, claim.accesses)
        lineages[claim.id] = lineage
        for claimant in lineage { waitingUnder[claimant, default: []].insert(claim.id) }
        if let purpose = claim.purpose { waitingFor[purpose, default: []].insert(claim.id) }
    }

    private mutating func removeWaiting(_ claim: ClaimTable.Claim) {
        waiting.remove(claim.id, claim.accesses)
        for claimant in lineages.removeValue(forKey: claim.id) ?? [] { waitingUnder.remove(claim.id, at: claimant) }
        if let purpose = claim.purpose { waitingFor.remove(claim.id, at: purpose) }
    }
}

extension Dictionary where Value == Int {
    fileprivate mutating func decrease(_ key: Key) {
        guard let count = self[key] else { return }
        self[key] = count > 1 ? count - 1 : nil
    }
}

extension Dictionary where Value == Set<ClaimID> {
    fileprivate mutating func remove(_ id: ClaimID, at key: Key) {
        self[key]?.remove(id)
        if self[key]?.isEmpty == true { self[key] = nil }
    }
}
