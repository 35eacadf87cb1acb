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
        public internal(set) var accesses: [ItemAccess]
        public internal(set) var isHeld: Bool
        /// The purposes of the presenters that must answer before the claim is held. It is nil if
        /// none must.
        public internal(set) var awaited: Set<[UInt8]>?

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
    public internal(set) var claims: [Claim] = []
    /// The claimants that another one has begun, and whether that one waits for them.
    public var origins: [ClaimantID: (claimant: ClaimantID, waits: Bool)] = [:]
    var last: UInt64 = 0

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
        let claim = Claim(id: ClaimID(rawValue: last), claimant: claimant, purpose: purpose, accesses: accesses, isHeld: false)
        claims.append(claim)
        if !isBlocked(claim) {
            claims[claims.count - 1].isHeld = true
            return .granted(claim.id)
        }
        if wouldDeadlock(claim) {
            claims.removeLast()
            return .deadlock
        }
        return .waits(claim.id)
    }

    /// Ends a claim, held or waiting. No effect for an unknown id.
    public mutating func remove(_ id: ClaimID) -> Effect {
        guard let place = place(of: id) else { return Effect() }
        claims.remove(at: place)
        return Effect(granted: promote())
    }

    /// Ends several at once.
    public mutating func remove(_ ids: Set<ClaimID>) -> Effect {
        claims.removeAll { ids.contains($0.id) }
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
            claims[place].accesses = accesses
            hasChanged = true
        }
        return hasChanged ? promoteAndBreakDeadlocks() : Effect()
    }

    mutating func promoteAndBreakDeadlocks() -> Effect {
        var effect = Effect(granted: promote())
        // The youngest is removed: the others have waited longer.
        while let stuck = claims.last(where: { !$0.isHeld && wouldDeadlock($0) }) {
            effect.deadlocked.append(stuck.id)
            effect.granted += remove(stuck.id).granted
        }
        return effect
    }

    /// Grants every claim that is no longer blocked.
    mutating func promote() -> [ClaimID] {
        var granted: [ClaimID] = []
        for place in claims.indices where !claims[place].isHeld && claims[place].awaited == nil && !isBlocked(claims[place]) {
            claims[place].isHeld = true
            granted.append(claims[place].id)
        }
        return granted
    }

    /// The held claims with which an operation outside the table would conflict.
    public func holders(against access: ItemAccess) -> [Claim] {
        claims.filter { claim in claim.isHeld && claim.accesses.contains { $0.conflicts(with: access) } }
    }
}
