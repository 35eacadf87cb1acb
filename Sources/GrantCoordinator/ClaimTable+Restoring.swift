// Restores a table from another process.
extension ClaimTable {
    /// The number of the newest claim, which may have ended.
    public var lastNumber: UInt64 { last }

    /// Restores a table. The result is nil if the claims are inconsistent.
    ///
    /// - Parameters:
    ///   - claims: In table order.
    ///   - lastNumber: The number of the old table's newest claim.
    public init?(claims: [Claim], lastNumber: UInt64) {
        guard zip(claims, claims.dropFirst()).allSatisfy({ $0.id < $1.id }), claims.last.map({ $0.id.rawValue <= lastNumber }) ?? true
        else { return nil }
        self.claims = claims
        last = lastNumber
    }
}

extension ClaimTable {
    /// Grants claims that no other claim blocks any more, after some were not restored.
    public mutating func reconsider() -> Effect { promoteAndBreakDeadlocks() }
}

extension ClaimTable.Claim {
    public init(restored id: ClaimID, claimant: ClaimantID, purpose: [UInt8]?, accesses: [ItemAccess], isHeld: Bool, awaited: Set<[UInt8]>?)
    {
        (self.id, self.claimant, self.purpose, self.accesses) = (id, claimant, purpose, accesses)
        (self.isHeld, self.awaited) = (isHeld, awaited)
    }
}
