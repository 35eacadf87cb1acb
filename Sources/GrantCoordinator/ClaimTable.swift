/// Names one claim in one table. Given by the table, never used twice.
public struct ClaimID: Hashable, Sendable, Comparable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
    public static func < (one: ClaimID, other: ClaimID) -> Bool { one.rawValue < other.rawValue }
}

/// Who waits for one claim at a time: a thread, a task, a command with those that it started. 128 random bits.
public struct ClaimantID: Hashable, Sendable {
    public let (high, low): (UInt64, UInt64)
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// The claims of one mount: who holds what, and who waits for it in which order. No I/O, no clock, no lock: its owner has those.
///
/// The rules:
/// - Two claims conflict when an access of one conflicts with an access of the other. What is held never conflicts, but within one purpose.
/// - A claim waits for every claim it conflicts with that is held, or that has come before it. So a writer that waits holds up later readers.
/// - It does not wait for one that waits, directly or by way of others, for what its own claimant or purpose holds: neither could ever go on.
/// - A claim is granted whole or not at all, so its parts never wait for each other.
/// - A claim whose wait would close a circle of claimants is refused when it comes.
/// - A claim for which presenters are asked waits like any other, and claims of those presenters' purposes go before it: to save, they claim.
public struct ClaimTable: Sendable {
    public struct Claim: Sendable {
        public let id: ClaimID
        public let claimant: ClaimantID
        /// Claims of one purpose never block each other; nil conflicts with every other.
        public let purpose: [UInt8]?
        public internal(set) var accesses: [ItemAccess]
        public internal(set) var isHeld: Bool
        /// Of one that would be held, but for presenters that are asked first: their purposes. nil otherwise.
        public internal(set) var awaited: Set<[UInt8]>?

        /// Whether it would block `other`, if it is held or came first.
        func conflicts(with other: Claim) -> Bool {
            if id == other.id { return false }
            if let purpose, purpose == other.purpose { return false }
            for mine in accesses {
                for theirs in other.accesses where mine.conflicts(with: theirs) { return true }
            }
            return false
        }

        func isRelated(to other: Claim) -> Bool { claimant == other.claimant || (purpose != nil && purpose == other.purpose) }
    }

    /// What becomes of a new claim.
    public enum Answer: Equatable, Sendable {
        case granted(ClaimID)
        case waits(ClaimID)
        /// It was not taken in: its claimant would wait for itself.
        case deadlock
    }

    /// What a change made of others.
    public struct Effect: Equatable, Sendable {
        /// In the order in which they came.
        public var granted: [ClaimID] = []
        /// Taken away, because they would wait for themselves.
        public var deadlocked: [ClaimID] = []

        public init(granted: [ClaimID] = [], deadlocked: [ClaimID] = []) { (self.granted, self.deadlocked) = (granted, deadlocked) }
    }

    /// In order of arrival.
    public internal(set) var claims: [Claim] = []
    var last: UInt64 = 0

    public init() {}

    public subscript(_ id: ClaimID) -> Claim? { place(of: id).map { claims[$0] } }

    func place(of id: ClaimID) -> Int? {
        // Ids grow, so the order of arrival is theirs.
        var (low, high) = (0, claims.count)
        while low < high {
            let middle = (low + high) / 2
            if claims[middle].id < id { low = middle + 1 } else { high = middle }
        }
        return low < claims.count && claims[low].id == id ? low : nil
    }

    /// Takes a claim in. It waits until a later call says that it is granted.
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

    /// Ends a claim, held or waiting. An id that is not there changes nothing.
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

    /// Puts claims' items where they are now, as files were renamed. Claims that are held stay so, also if they meet now; those that wait may be
    /// granted by it, or be found to wait in a circle.
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
        // The youngest goes: the others have waited longer.
        while let stuck = claims.last(where: { !$0.isHeld && wouldDeadlock($0) }) {
            effect.deadlocked.append(stuck.id)
            effect.granted += remove(stuck.id).granted
        }
        return effect
    }

    /// Grants what nobody blocks any more.
    mutating func promote() -> [ClaimID] {
        var granted: [ClaimID] = []
        for place in claims.indices where !claims[place].isHeld && claims[place].awaited == nil && !isBlocked(claims[place]) {
            claims[place].isHeld = true
            granted.append(claims[place].id)
        }
        return granted
    }

    /// The claims that are held and that an operation which is none of the table's would conflict with.
    public func holders(against access: ItemAccess) -> [Claim] {
        claims.filter { claim in claim.isHeld && claim.accesses.contains { $0.conflicts(with: access) } }
    }
}
