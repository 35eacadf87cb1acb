// A table as it was in another process.
extension ClaimTable {
    /// The number of the claim that came last, which may have ended.
    public var lastNumber: UInt64 { last }

    /// `claims`: of a table, in its order; nil when they cannot be. `lastNumber`: that table's.
    public init?(claims: [Claim], lastNumber: UInt64) {
        guard zip(claims, claims.dropFirst()).allSatisfy({ $0.id < $1.id }), claims.last.map({ $0.id.rawValue <= lastNumber }) ?? true
        else { return nil }
        self.claims = claims
        last = lastNumber
    }
}

extension ClaimTable {
    /// Grants what nobody blocks, after some of its claims may not have come along.
    public mutating func reconsider() -> Effect { promoteAndBreakDeadlocks() }
}

extension ClaimTable.Claim {
    public init(restored id: ClaimID, claimant: ClaimantID, purpose: [UInt8]?, accesses: [ItemAccess], isHeld: Bool, awaited: Set<[UInt8]>?)
    {
        (self.id, self.claimant, self.purpose, self.accesses) = (id, claimant, purpose, accesses)
        (self.isHeld, self.awaited) = (isHeld, awaited)
    }
}
