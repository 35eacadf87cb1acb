import Synchronization

/// Shares of something there is only so much of, such as descriptors, for each grant and for each user: whoever uses all that he can get leaves
/// something to everybody else.
///
/// No grant may hold more than 16 times what is left. So one alone may have nearly all of it (16 parts of 17), two have 16 of 33
/// each, and however many there are, there is something left; nothing has to be set, and nobody is to know who will come. It is the way in which switches
/// share the memory of their queues (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998). A user may hold 256 times
/// what is left: who has used up one grant's share still has others of his own, and whoever opens all of them leaves something to other users.
///
/// A sixty-fourth of all is not counted as left: it is for grants and users that have only a few, so that several who have all that they can get, one after the
/// other, do not leave nothing.
///
/// Users are told apart by a number that is drawn from the user id, so two of many thousands may have to share.
/// Locking: none.
public final class FairQuota: @unchecked Sendable {
    // Safe to share: the tables are allocated once, their elements are atomics.
    /// So much there is.
    let limit: Int
    private let used = Atomic<Int>(0)
    private let scopes: UnsafeMutablePointer<Atomic<Int>>
    private let users: UnsafeMutablePointer<Atomic<Int>>

    private static let generosity = (scope: 16, user: 256)
    private static let places = 4096

    public init(limit: Int) {
        self.limit = limit
        scopes = .allocate(capacity: Self.places)
        users = .allocate(capacity: Self.places)
        for place in 0..<Self.places {
            (scopes + place).initialize(to: Atomic(0))
            (users + place).initialize(to: Atomic(0))
        }
    }

    deinit {
        scopes.deallocate()
        users.deallocate()
    }

    /// All that is taken.
    public var inUse: Int { used.load(ordering: .relaxed) }

    /// Takes one for a grant's scope and a user, and `release`s it back later. False when either has his share.
    public func reserve(scope: UInt32, user: UInt32) -> Bool {
        let all = used.wrappingAdd(1, ordering: .relaxed).newValue
        let ofScope = Self.place(scope, in: scopes).pointee.wrappingAdd(1, ordering: .relaxed).newValue
        let ofUser = Self.place(user, in: users).pointee.wrappingAdd(1, ordering: .relaxed).newValue
        if limit - all >= needed(ofScope, ofUser) { return true }
        release(scope: scope, user: user)
        return false
    }

    /// Takes one that was another daemon's before, whoever has how many.
    func takeOver(scope: UInt32, user: UInt32) {
        used.wrappingAdd(1, ordering: .relaxed)
        Self.place(scope, in: scopes).pointee.wrappingAdd(1, ordering: .relaxed)
        Self.place(user, in: users).pointee.wrappingAdd(1, ordering: .relaxed)
    }

    /// Whether there would be one. What must leave nothing behind asks first.
    public func hasRoom(scope: UInt32, user: UInt32) -> Bool { limit - inUse - 1 >= needed(scope: scope, user: user, more: 1) }

    /// So much must be left for others when a scope and a user have what they have and so many more.
    func needed(scope: UInt32, user: UInt32, more: Int = 0) -> Int {
        needed(
            Self.place(scope, in: scopes).pointee.load(ordering: .relaxed) + more,
            Self.place(user, in: users).pointee.load(ordering: .relaxed) + more)
    }

    @inline(__always)
    private func needed(_ ofScope: Int, _ ofUser: Int) -> Int {
        if ofScope <= few, ofUser <= 4 * few { return 0 }
        let (scope, user) = Self.generosity
        return limit / 64 + max((ofScope + scope - 1) / scope, (ofUser + user - 1) / user)
    }

    /// So many are only a few for a grant; for a user four times as many.
    private var few: Int { max(4, limit / 1024) }

    public func release(scope: UInt32, user: UInt32) {
        used.wrappingSubtract(1, ordering: .relaxed)
        Self.place(scope, in: scopes).pointee.wrappingSubtract(1, ordering: .relaxed)
        Self.place(user, in: users).pointee.wrappingSubtract(1, ordering: .relaxed)
    }

    /// Ids that follow each other have places of their own, and multiples of a power of two as well.
    private static func place(_ number: UInt32, in table: UnsafeMutablePointer<Atomic<Int>>) -> UnsafeMutablePointer<Atomic<Int>> {
        table + Int(truncatingIfNeeded: (number ^ number >> 12 ^ number >> 24) & UInt32(truncatingIfNeeded: places - 1))
    }
}

/// One of a `FairQuota`, given back with the end of this value.
public final class QuotaReservation: Sendable {
    private let shares: FairQuota
    private let scope: UInt32
    private let user: UInt32

    init(_ shares: FairQuota, scope: UInt32, user: UInt32) { (self.shares, self.scope, self.user) = (shares, scope, user) }

    deinit { shares.release(scope: scope, user: user) }
}
