import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Counts the descriptors that nodes hold.
final class DescriptorBudget: @unchecked Sendable {
    // Sendable: the table is allocated once, its elements are atomics.
    /// The limit for nodes alone, and the limit shared with programs.
    private let base: Int
    private let shared: Int
    private let shares: FairQuota
    /// Descriptors of each scope's nodes, see `FairQuota`.
    private let ofScopes: UnsafeMutablePointer<Atomic<Int>>
    private static let places = 4096
    /// When an eviction last failed (`Clock.monotonic`).
    ///
    /// A scan of all nodes is too expensive for every request.
    let lastFailure = Atomic<Int64>(0)
    static let backoff: Int64 = 5_000_000
    /// The number of scopes, whose roots' descriptors are not counted against the limit.
    ///
    /// Otherwise a view of many grants would have none left for files.
    private let scopes = Atomic<Int>(0)
    private let used = Atomic<Int>(0)
    let evicting = Atomic<Bool>(false)
    let clockHand = Atomic<UInt32>(0)
    let wasExceeded = Atomic<Bool>(false)

    init(limit: Int, shared: Int, shares: FairQuota) {
        (base, self.shared, self.shares) = (limit, shared, shares)
        ofScopes = .allocate(capacity: Self.places)
        for place in 0..<Self.places { (ofScopes + place).initialize(to: Atomic(0)) }
    }

    deinit { ofScopes.deallocate() }

    /// The current limit of nodes. It shrinks as programs hold more.
    var limit: Int { min(base, max(shared / 16, shared - shares.inUse)) + rootCount }
    /// The unused part of the shared limit.
    var left: Int { shared + rootCount - shares.inUse - inUse }
    /// Descriptors that are never evicted.
    var rootCount: Int { scopes.load(ordering: .relaxed) }

    /// Records that scopes were added or removed.
    func addRoots(_ count: Int) { scopes.wrappingAdd(count, ordering: .relaxed) }

    var inUse: Int { used.load(ordering: .relaxed) }

    /// Counts one more. True if the limit is exceeded.
    func add(_ scope: UInt32) -> Bool {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.wrappingAdd(1, ordering: .relaxed)
        return used.wrappingAdd(1, ordering: .relaxed).newValue > limit
    }

    func remove(_ scope: UInt32) {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.wrappingSubtract(1, ordering: .relaxed)
        used.wrappingSubtract(1, ordering: .relaxed)
    }

    /// Whether a scope's nodes have more than four times the unused part.
    ///
    /// They reach that only by nameless files, which keep their descriptors.
    func isOverdrawn(_ scope: UInt32) -> Bool {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.load(ordering: .relaxed) > 4 * left
    }
}

extension NodeTree {
    /// Reserves a share that is released with the value: see `reserveShare`.
    public func share(scope: UInt32, user: UInt32) -> QuotaReservation? {
        reserveShare(scope: scope, user: user) ? QuotaReservation(shares, scope: scope, user: user) : nil
    }

    /// Reserves the share of a descriptor that another daemon's program holds.
    ///
    /// Limits do not apply.
    public func takeOverShare(scope: UInt32, user: UInt32) -> QuotaReservation {
        shares.takeOver(scope: scope, user: user)
        return QuotaReservation(shares, scope: scope, user: user)
    }

    /// Whether descriptors were ever evicted.
    var isUnderPressure: Bool { budget.wasExceeded.load(ordering: .relaxed) }

    /// Evicts descriptors of unpinned nodes until an eighth of the budget is free.
    ///
    /// When descriptor numbers have run out, half of it must be free. Sweeps the table like a clock
    /// hand. Evicts directories only if other nodes do not suffice, because they lead to their
    /// entries. One thread runs at a time. The others continue and find room afterwards.
    ///
    /// `least`: this many must be left in any case.
    ///
    /// Locking: the shards', one at a time, each for a moment.
    func evict(numbersRanOut: Bool = false, leaving least: Int = 0) {
        if budget.lastFailure.load(ordering: .relaxed) != 0,
            Clock.monotonic - budget.lastFailure.load(ordering: .relaxed) < DescriptorBudget.backoff
        {
            return
        }
        guard budget.evicting.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged else { return }
        defer { budget.evicting.store(false, ordering: .releasing) }
        budget.wasExceeded.store(true, ordering: .relaxed)
        let kept = budget.rootCount
        let (lent, room) = (min(budget.inUse, budget.limit) - kept, budget.limit - kept)
        var goal = kept + (numbersRanOut ? lent / 2 : room - room / 8)
        if least > 0 { goal = max(kept, min(goal, budget.inUse + budget.left - least)) }
        let before = budget.inUse
        let limit = nodes.indexLimit
        for takesDirectories in [false, true] {
            var steps = takesDirectories ? limit : min(limit, UInt32(clamping: budget.limit * 8))
            while budget.inUse > goal, steps > 0 {
                steps -= 1
                let index = budget.clockHand.wrappingAdd(1, ordering: .relaxed).oldValue % max(limit, 1)
                guard let (id, key, scope) = identity(at: index, takesDirectories), id != scope.root?.id else { continue }
                withNode(id, key, in: scope) { evictDescriptor($0) }
            }
        }
        budget.lastFailure.store(budget.inUse > goal && before - budget.inUse < 8 ? Clock.monotonic : 0, ordering: .relaxed)
    }

    /// Reserves a share of descriptors for an object that a program holds.
    ///
    /// `FairQuota.release` returns it. Returns false if the scope or the user has exhausted its
    /// share, or if there are no descriptors.
    public func reserveShare(scope: UInt32, user: UInt32) -> Bool {
        guard shares.reserve(scope: scope, user: user) else { return false }
        let least = max(0, shares.needed(scope: scope, user: user))
        if budget.left < least {
            // An eighth more, so that not every open has to evict.
            evict(leaving: least + least / 8 + 8)
            if budget.left < least {
                shares.release(scope: scope, user: user)
                return false
            }
        }
        return true
    }

    /// Reserves a share regardless of limits, because acknowledged data must be written.
    public func forceReserveShare(scope: UInt32, user: UInt32) { shares.takeOver(scope: scope, user: user) }

    /// Calls `open`. If descriptor numbers have run out, evicts some and calls it again.
    @inline(__always)
    public func evictingIfNeeded(_ open: () -> Int32) -> Int32 {
        let result = open()
        return result == -EMFILE || result == -ENFILE ? openAfterEviction(open) : result
    }

    /// Tries several times: others take numbers as well, and one thread at a time evicts.
    private func openAfterEviction(_ open: () -> Int32) -> Int32 {
        for _ in 0..<8 {
            evict(numbersRanOut: true)
            let result = open()
            if result != -EMFILE && result != -ENFILE { return result }
            usleep(500)
        }
        return -EMFILE
    }

    /// Evicts the descriptor of a node that can be reopened.
    private func evictDescriptor(_ node: UnsafeMutablePointer<Node>) {
        let old = node.pointee.pinState.load(ordering: .acquiring)
        guard old & Node.descriptorMask != 0, old >> 32 == 0, canReopen(node) else { return }
        if node.pointee.owner.opensByHandle, !node.pointee.handle.isStored {
            // Pinned while the handle is read, so that the number stays ours.
            guard node.pointee.pinState.compareExchange(expected: old, desired: old + Node.pin, ordering: .acquiringAndReleasing).exchanged
            else { return }
            var handle = clinux_handle()
            let result = clinux_name_to_handle(Int32(truncatingIfNeeded: old & Node.descriptorMask) - 1, &handle)
            if result == 0 { node.pointee.handle.store(handle) }
            let rest = node.pointee.pinState.wrappingSubtract(Node.pin, ordering: .acquiringAndReleasing).newValue
            if result != 0 || rest != old { return }
        }
        guard node.pointee.pinState.compareExchange(expected: old, desired: Node.pin, ordering: .acquiringAndReleasing).exchanged else {
            return
        }
        // Another thread may have opened or removed it in between.
        if canReopen(node) {
            close(old, of: node.pointee.scope)
        } else if install(Int32(truncatingIfNeeded: old & Node.descriptorMask) - 1, in: node) >= 0 {
            budget.remove(node.pointee.scope)
        }
        node.pointee.pinState.wrappingSubtract(Node.pin, ordering: .acquiringAndReleasing)
    }

    /// Whether a node's handle or name certainly leads to its file.
    ///
    /// Returns false for open and for removed files.
    private func canReopen(_ node: UnsafeMutablePointer<Node>) -> Bool {
        if node.pointee.keepsDescriptor.load(ordering: .acquiring) { return false }
        if node.pointee.owner.opensByHandle { return true }
        return node.pointee.name.load(ordering: .acquiring) != 0 && node.pointee.openers.load(ordering: .acquiring) == 0
    }

    /// Runs `body` on a node, kept alive by a lookup count, if it still exists.
    ///
    /// Locking: the shard's, for a moment before and after.
    func withNode(_ id: UInt64, _ key: NodeKey, in scope: ScopeNodes, _ body: (UnsafeMutablePointer<Node>) -> Void) {
        guard let node = scope.withShard(of: key, { $0.count(id, in: nodes) }) else { return }
        body(node)
        forget(id, 1)
    }

    /// Runs `body` with the pinned descriptor of a scope's root, or a negative error number.
    ///
    /// Call it from outside of any operation. Locking: as `withNode`.
    public func withRoot(of scope: ScopeNodes, _ body: (Int32) -> Void) {
        guard let root = scope.root else { return }
        withNode(root.id, root.key, in: scope) { node in
            body(pin(node))
            unpin(root.id, node)
        }
    }

    /// Counts one more lookup of a node that still exists in the scope.
    ///
    /// Locking: the shard's.
    func count(_ id: UInt64, in scope: ScopeNodes) -> UnsafeMutablePointer<Node>? {
        guard let node = nodes.find(id) else { return nil }
        return scope.withShard(of: node.pointee.key) { $0.count(id, in: nodes) }
    }

    /// The live node with a descriptor at an index of the table.
    ///
    /// The scope's index is searched afterwards, under its lock. So a cell that changes owner
    /// meanwhile is only a miss.
    private func identity(at index: UInt32, _ takesDirectories: Bool) -> (id: UInt64, key: NodeKey, scope: ScopeNodes)? {
        guard let (id, node) = nodes.element(at: index), node.pointee.pinState.load(ordering: .relaxed) & Node.descriptorMask != 0,
            takesDirectories || node.pointee.type != S_IFDIR
        else { return nil }
        let (key, number) = (node.pointee.key, node.pointee.scope)
        guard let scope = scope(number), nodes.find(id) != nil else { return nil }
        return (id, key, scope)
    }
}
