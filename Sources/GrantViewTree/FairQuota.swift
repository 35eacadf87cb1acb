import Synchronization

/// Divides a limited resource, such as descriptors, so that no holder starves the others.
///
/// Holders are grants and users. A grant may hold at most 16 times the rest. So one grant can have
/// nearly all (16/17), two have 16/33 each, and with any number of grants some of the resource is
/// left. There is no configuration, and holders need not be known in advance. Switches share queue
/// memory in this way (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory
/// packet switches, 1998).
///
/// A user may hold 256 times the rest. A user that has exhausted a grant's share still gets shares
/// of other grants. A user that opens files in all grants leaves some for other users.
///
/// A sixty-fourth of the resource does not count as left. It is reserved for grants and users that
/// hold only a few, in case several others hold all they can.
///
/// Users share counters by a hash of their IDs, so two of many thousands may collide. Locking:
/// none.
public final class FairQuota: @unchecked Sendable {
    // Sendable: the tables are allocated once, their elements are atomics.
    /// The size of the resource.
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

    /// The total in use.
    public var inUse: Int { used.load(ordering: .relaxed) }

    /// Reserves one for a scope and a user. `release` returns it.
    ///
    /// Returns false if either has exhausted its share.
    public func reserve(scope: UInt32, user: UInt32) -> Bool {
        let all = used.wrappingAdd(1, ordering: .relaxed).newValue
        let ofScope = Self.place(scope, in: scopes).pointee.wrappingAdd(1, ordering: .relaxed).newValue
        let ofUser = Self.place(user, in: users).pointee.wrappingAdd(1, ordering: .relaxed).newValue
        if limit - all >= needed(ofScope, ofUser) { return true }
        release(scope: scope, user: user)
        return false
    }

    /// Reserves one that another daemon held, regardless of shares.
    func takeOver(scope: UInt32, user: UInt32) {
        used.wrappingAdd(1, ordering: .relaxed)
        Self.place(scope, in: scopes).pointee.wrappingAdd(1, ordering: .relaxed)
        Self.place(user, in: users).pointee.wrappingAdd(1, ordering: .relaxed)
    }

    /// Whether a reservation would succeed.
    ///
    /// Call it before an operation that must not leave a partial result.
    public func hasRoom(scope: UInt32, user: UInt32) -> Bool { limit - inUse - 1 >= needed(scope: scope, user: user, more: 1) }

    /// How much must be left when a scope and a user hold `more` than now.
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

    /// How many count as a few for a grant. For a user four times as many do.
    private var few: Int { max(4, limit / 1024) }

    public func release(scope: UInt32, user: UInt32) {
        used.wrappingSubtract(1, ordering: .relaxed)
        Self.place(scope, in: scopes).pointee.wrappingSubtract(1, ordering: .relaxed)
        Self.place(user, in: users).pointee.wrappingSubtract(1, ordering: .relaxed)
    }

    /// Spreads consecutive ids, and multiples of powers of two.
    private static func place(_ number: UInt32, in table: UnsafeMutablePointer<Atomic<Int>>) -> UnsafeMutablePointer<Atomic<Int>> {
        table + Int(truncatingIfNeeded: (number ^ number >> 12 ^ number >> 24) & UInt32(truncatingIfNeeded: places - 1))
    }
}

/// A reservation of a `FairQuota`, released with this value.
public final class QuotaReservation: Sendable {
    private let shares: FairQuota
    private let scope: UInt32
    private let user: UInt32

    init(_ shares: FairQuota, scope: UInt32, user: UInt32) { (self.shares, self.scope, self.user) = (shares, scope, user) }

    deinit { shares.release(scope: scope, user: user) }
}
