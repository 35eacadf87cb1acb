/// Identifies a claim in its table. Assigned by the table, never reused.
public struct ClaimID: Hashable, Sendable, Comparable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
    public static func < (one: ClaimID, other: ClaimID) -> Bool { one.rawValue < other.rawValue }
}

/// Identifies a claimant, which waits for one claim at a time.
///
/// It is a thread, a task, or a command with its children. 128 random bits.
public struct ClaimantID: Hashable, Sendable {
    public let (high, low): (UInt64, UInt64)
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// The claims of one mount, held and waiting, in order of arrival.
///
/// Pure value without I/O, clock or lock: its owner has those. The rules:
/// - Two claims conflict when an access of one conflicts with an access of the other. Held claims
///   never conflict, except within one purpose.
/// - A claim waits for every conflicting claim that is held or arrived earlier. So a waiting writer
///   blocks later readers.
/// - It overtakes a claim that waits, directly or transitively, for a claim of its own claimant, of
///   one that has begun it, or of its purpose. Otherwise neither could ever proceed.
/// - A claim is granted whole or not at all, so its parts never wait for each other.
/// - A claim that would deadlock is refused when it arrives.
/// - While a claim waits for presenters, claims of those presenters' purposes overtake it: to save,
///   a presenter claims.
public struct ClaimTable: Sendable {
    public struct Claim: Sendable {
        public let id: ClaimID
        public let claimant: ClaimantID
        /// Claims of one purpose never block each other. A claim without one conflicts with all
        /// others.
        public let purpose: [UInt8]?
        public fileprivate(set) var accesses: [ItemAccess]
        public fileprivate(set) var isHeld: Bool
        /// The purposes of the presenters that must answer before the claim is held. It is nil if
        /// none must.
        public fileprivate(set) var awaited: Set<[UInt8]>?

        /// Whether this claim blocks `other` if it is held or arrived first.
        func conflicts(with other: Claim) -> Bool {
            if id == other.id { return false }
            if let purpose, purpose == other.purpose { return false }
            for mine in accesses {
                for theirs in other.accesses where mine.conflicts(with: theirs) { return true }
            }
            return false
        }

    }

    /// The result of adding a claim.
    public enum Answer: Equatable, Sendable {
        case granted(ClaimID)
        case waits(ClaimID)
        /// The claim was not added: its claimant would wait for itself.
        case deadlock
    }

    /// The effect of a change on other claims.
    public struct Effect: Equatable, Sendable {
        /// In order of arrival.
        public var granted: [ClaimID] = []
        /// Removed, because they would wait for themselves.
        public var deadlocked: [ClaimID] = []

        public init(granted: [ClaimID] = [], deadlocked: [ClaimID] = []) { (self.granted, self.deadlocked) = (granted, deadlocked) }
    }

    /// In order of arrival.
    public private(set) var claims: [Claim] = []
    /// The claimants that another one has begun, and whether that one waits for them. It is set before the claimant's first claim.
    public var origins: [ClaimantID: (claimant: ClaimantID, waits: Bool)] = [:]
    private(set) var index = ClaimIndex()
    private var blocked = BlockedClaims()
    private(set) var last: UInt64 = 0

    public init() {}

    public subscript(_ id: ClaimID) -> Claim? { place(of: id).map { claims[$0] } }

    func place(of id: ClaimID) -> Int? {
        // Ids grow, so their order is the order of arrival.
        var (low, high) = (0, claims.count)
        while low < high {
            let middle = (low + high) / 2
            if claims[middle].id < id { low = middle + 1 } else { high = middle }
        }
        return low < claims.count && claims[low].id == id ? low : nil
    }

    /// Adds a claim. If it waits, a later `Effect` reports when it is granted.
    public mutating func add(_ accesses: [ItemAccess], claimant: ClaimantID, purpose: [UInt8]?) -> Answer {
        last += 1
        var claim = Claim(id: ClaimID(rawValue: last), claimant: claimant, purpose: purpose, accesses: accesses, isHeld: false)
        let blocker = blocker(of: claim)
        claim.isHeld = blocker == nil
        claims.append(claim)
        index.insert(claim, lineage: lineage(of: claimant))
        guard let blocker else {
            loosenRelatives(of: claim)
            return .granted(claim.id)
        }
        if wouldDeadlock(claim) {
            drop(claims.count - 1)
            return .deadlock
        }
        blocked.block(claim.id, by: blocker)
        return .waits(claim.id)
    }

    /// Ends a claim, held or waiting. No effect for an unknown id.
    public mutating func remove(_ id: ClaimID) -> Effect {
        guard let place = place(of: id) else { return Effect() }
        drop(place)
        return Effect(granted: promote())
    }

    /// Ends several at once.
    public mutating func remove(_ ids: Set<ClaimID>) -> Effect {
        for id in ids { if let place = place(of: id) { drop(place) } }
        return Effect(granted: promote())
    }

    /// Updates the positions of claimed items after renames.
    ///
    /// Held claims stay held even if they conflict now. Waiting claims may be granted, or found to
    /// deadlock.
    public mutating func update(_ accesses: [ClaimID: [ItemAccess]]) -> Effect {
        var hasChanged = false
        for (id, accesses) in accesses {
            guard let place = place(of: id), claims[place].accesses != accesses else { continue }
            change(place) { $0.accesses = accesses }
            hasChanged = true
        }
        return hasChanged ? reconsider() : Effect()
    }

    /// Looks at all claims again, which others may block no more.
    public mutating func reconsider() -> Effect {
        blocked.loosen(claims.filter { !$0.isHeld }.map(\.id))
        return promoteAndBreakDeadlocks()
    }

    // MARK: presenters

    /// Defers a held claim until `answered`, while presenters of these purposes are asked.
    ///
    /// This may grant other claims, which those presenters need before they answer. No effect for
    /// an id that is unknown or not held.
    public mutating func ask(_ id: ClaimID, of purposes: Set<[UInt8]>) -> Effect {
        guard let place = place(of: id), claims[place].isHeld else { return Effect() }
        change(place) { ($0.isHeld, $0.awaited) = (false, purposes) }
        blocked.loosenBlocked(by: id)
        blocked.loosenOvertaking()
        for purpose in purposes { blocked.loosen(index.waitingClaims(for: purpose)) }
        return Effect(granted: promote())
    }

    /// Waits for presenters of fewer purposes. Claims that overtook this one keep their place.
    public mutating func narrow(_ id: ClaimID, to purposes: Set<[UInt8]>) {
        guard let place = place(of: id), let awaited = claims[place].awaited, !awaited.isSubset(of: purposes)
        else { return }
        change(place) { $0.awaited = awaited.intersection(purposes) }
    }

    /// Ends the deferral of a claim.
    ///
    /// The claim is granted, waits for claims that overtook it, or is found to deadlock.
    public mutating func answered(_ id: ClaimID) -> Effect {
        guard let place = place(of: id), claims[place].awaited != nil else { return Effect() }
        change(place) { $0.awaited = nil }
        blocked.loosen([id])
        return promoteAndBreakDeadlocks()
    }

    // MARK: the state of a claim

    private mutating func drop(_ place: Int) {
        let claim = claims.remove(at: place)
        index.remove(claim)
        blocked.forget(claim.id)
        blocked.loosenBlocked(by: claim.id)
    }

    private mutating func change(_ place: Int, _ body: (inout Claim) -> Void) {
        index.remove(claims[place])
        body(&claims[place])
        index.insert(claims[place], lineage: lineage(of: claims[place].claimant))
    }

    /// Has the waiting claims looked at again that may overtake others since this one is held.
    private mutating func loosenRelatives(of claim: Claim) {
        blocked.loosen(index.waitingClaims(under: claim.claimant))
        if let purpose = claim.purpose { blocked.loosen(index.waitingClaims(for: purpose)) }
    }

    private mutating func promoteAndBreakDeadlocks() -> Effect {
        var effect = Effect(granted: promote())
        // The youngest is removed: the others have waited longer.
        while let stuck = claims.last(where: { !$0.isHeld && wouldDeadlock($0) }) {
            effect.deadlocked.append(stuck.id)
            effect.granted += remove(stuck.id).granted
        }
        return effect
    }

    /// Grants the claims that are no longer blocked, in order of arrival.
    private mutating func promote() -> [ClaimID] {
        var granted: [ClaimID] = []
        var purposes: Set<[UInt8]> = []
        var queue = blocked.takeLoose()
        var next = 0
        while next < queue.count {
            let id = queue[next]
            next += 1
            guard let place = place(of: id), !claims[place].isHeld, claims[place].awaited == nil else { continue }
            if let blocker = blocker(of: claims[place]) {
                blocked.block(id, by: blocker)
                continue
            }
            change(place) { $0.isHeld = true }
            blocked.forget(id)
            granted.append(id)
            var relatives = index.waitingClaims(under: claims[place].claimant)
            if let purpose = claims[place].purpose, purposes.insert(purpose).inserted {
                relatives.formUnion(index.waitingClaims(for: purpose))
            }
            if relatives.isEmpty { continue }
            // Those that arrived earlier have had their turn.
            blocked.loosen(relatives.lazy.filter { $0 < id })
            queue = relatives.filter { $0 > id }.union(queue[next...]).sorted()
            next = 0
        }
        for purpose in purposes { blocked.loosen(index.waitingClaims(for: purpose)) }
        return granted
    }

    /// The held claims with which an operation outside the table would conflict.
    public func holders(against access: ItemAccess) -> [Claim] {
        claims.filter { claim in claim.isHeld && claim.accesses.contains { $0.conflicts(with: access) } }
    }
}

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
        for claim in claims { index.insert(claim, lineage: [claim.claimant]) }
        blocked.loosen(claims.filter { !$0.isHeld }.map(\.id))
    }
}

extension ClaimTable.Claim {
    public init(restored id: ClaimID, claimant: ClaimantID, purpose: [UInt8]?, accesses: [ItemAccess], isHeld: Bool, awaited: Set<[UInt8]>?)
    {
        (self.id, self.claimant, self.purpose, self.accesses) = (id, claimant, purpose, accesses)
        (self.isHeld, self.awaited) = (isHeld, awaited)
    }
}
