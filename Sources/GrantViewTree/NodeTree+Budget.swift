import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Counts the descriptors that nodes hold.
final class DescriptorBudget: @unchecked Sendable {
    // Safe to share: the table is allocated once, its elements are atomics.
    /// What nodes may have of their own accord, and together with what programs hold.
    private let base: Int
    private let shared: Int
    private let shares: FairQuota
    /// What the nodes of a scope have; see `FairQuota`.
    private let ofScopes: UnsafeMutablePointer<Atomic<Int>>
    private static let places = 4096
    /// When descriptors could last not be had back, `Clock.monotonic`: looking through all nodes is not for each request.
    let lastFailure = Atomic<Int64>(0)
    static let backoff: Int64 = 5_000_000
    /// Scopes, each of which keeps the descriptor of its root: they come on top, or a view of many grants would have none left for files.
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

    /// So many nodes may have; fewer as programs hold more.
    var limit: Int { min(base, max(shared / 16, shared - shares.inUse)) + rootCount }
    /// What neither nodes nor programs have of what they share.
    var left: Int { shared + rootCount - shares.inUse - inUse }
    /// Descriptors that nobody is to lend.
    var rootCount: Int { scopes.load(ordering: .relaxed) }

    /// So many scopes have come or gone.
    func addRoots(_ count: Int) { scopes.wrappingAdd(count, ordering: .relaxed) }

    var inUse: Int { used.load(ordering: .relaxed) }

    /// Counts one more; true when that is more than the limit.
    func add(_ scope: UInt32) -> Bool {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.wrappingAdd(1, ordering: .relaxed)
        return used.wrappingAdd(1, ordering: .relaxed).newValue > limit
    }

    func remove(_ scope: UInt32) {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.wrappingSubtract(1, ordering: .relaxed)
        used.wrappingSubtract(1, ordering: .relaxed)
    }

    /// Whether a scope's nodes have more than four times what is left, which they can only get by files that have lost their names: those keep theirs.
    func isOverdrawn(_ scope: UInt32) -> Bool {
        (ofScopes + Int(truncatingIfNeeded: scope) % Self.places).pointee.load(ordering: .relaxed) > 4 * left
    }
}

extension NodeTree {
    /// A share that goes with the value: see `reserveShare`.
    public func share(scope: UInt32, user: UInt32) -> QuotaReservation? {
        reserveShare(scope: scope, user: user) ? QuotaReservation(shares, scope: scope, user: user) : nil
    }

    /// The share of something that another daemon's program held: it is held, however many there are.
    public func takeOverShare(scope: UInt32, user: UInt32) -> QuotaReservation {
        shares.takeOver(scope: scope, user: user)
        return QuotaReservation(shares, scope: scope, user: user)
    }

    /// Whether nodes have had to lend their descriptors.
    var isUnderPressure: Bool { budget.wasExceeded.load(ordering: .relaxed) }

    /// Closes descriptors of nodes that nobody uses just now until an eighth of the budget is free, or half of it when numbers have run
    /// out, going round like the hand of a clock. Directories only when there is not enough else, because they lead to what lies in
    /// them. One thread at a time; the others go on and find room again when it is through.
    ///
    /// Locking: the shards', one at a time, each for a moment.
    ///
    /// `least`: so much is to be left in any case.
    func evict(numbersRanOut: Bool = false, leaving least: Int = 0) {
        if budget.lastFailure.load(ordering: .relaxed) != 0, Clock.monotonic - budget.lastFailure.load(ordering: .relaxed) < DescriptorBudget.backoff {
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

    /// Takes a share of descriptors for something that a program holds, which gives it back (`FairQuota.release`). False when the scope or the user has
    /// what it may have, or there are none.
    public func reserveShare(scope: UInt32, user: UInt32) -> Bool {
        guard shares.reserve(scope: scope, user: user) else { return false }
        let least = max(0, shares.needed(scope: scope, user: user))
        if budget.left < least {
            // An eighth more, so that not each opening has to.
            evict(leaving: least + least / 8 + 8)
            if budget.left < least {
                shares.release(scope: scope, user: user)
                return false
            }
        }
        return true
    }

    /// Takes a share however few there are: what was acknowledged has to be written.
    public func forceReserveShare(scope: UInt32, user: UInt32) { shares.takeOver(scope: scope, user: user) }

    /// Calls `open`, and again after descriptors were lent if there are no numbers left.
    @inline(__always)
    public func evictingIfNeeded(_ open: () -> Int32) -> Int32 {
        let result = open()
        return result == -EMFILE || result == -ENFILE ? openAfterEviction(open) : result
    }

    /// A few times, because others take numbers as well, and one thread at a time gives some back.
    private func openAfterEviction(_ open: () -> Int32) -> Int32 {
        for _ in 0..<8 {
            evict(numbersRanOut: true)
            let result = open()
            if result != -EMFILE && result != -ENFILE { return result }
            usleep(500)
        }
        return -EMFILE
    }

    /// Closes the descriptor of a node that can be opened again.
    private func evictDescriptor(_ node: UnsafeMutablePointer<Node>) {
        let old = node.pointee.pinState.load(ordering: .acquiring)
        guard old & Node.descriptorMask != 0, old >> 32 == 0, canReopen(node) else { return }
        if node.pointee.owner.opensByHandle, !node.pointee.handle.isStored {
            // Pin it while asking for the handle, so that the number stays ours.
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
        // Somebody may have opened or removed it, and have been gone again, between the two looks.
        if canReopen(node) {
            close(old, of: node.pointee.scope)
        } else if install(Int32(truncatingIfNeeded: old & Node.descriptorMask) - 1, in: node) >= 0 {
            budget.remove(node.pointee.scope)
        }
        node.pointee.pinState.wrappingSubtract(Node.pin, ordering: .acquiringAndReleasing)
    }

    /// Not what is open, or was removed: its handle or name leads nowhere, or may at any time.
    private func canReopen(_ node: UnsafeMutablePointer<Node>) -> Bool {
        if node.pointee.keepsDescriptor.load(ordering: .acquiring) { return false }
        if node.pointee.owner.opensByHandle { return true }
        return node.pointee.name.load(ordering: .acquiring) != 0 && node.pointee.openers.load(ordering: .acquiring) == 0
    }

    /// Runs `body` on a node that cannot end meanwhile, if it is still there: it is counted once more around it.
    ///
    /// Locking: the shard's, for a moment before and after.
    func withNode(_ id: UInt64, _ key: NodeKey, in scope: ScopeNodes, _ body: (UnsafeMutablePointer<Node>) -> Void) {
        guard let node = scope.withShard(of: key, { $0.count(id, in: nodes) }) else { return }
        body(node)
        forget(id, 1)
    }

    /// Runs `body` with the descriptor of a scope's root pinned (or a negative error number), from outside of any operation.
    ///
    /// Locking: as `withNode`.
    public func withRoot(of scope: ScopeNodes, _ body: (Int32) -> Void) {
        guard let root = scope.root else { return }
        withNode(root.id, root.key, in: scope) { node in
            body(pin(node))
            unpin(root.id, node)
        }
    }

    /// Counts one more lookup of a node, if it is one of the scope's and still there.
    ///
    /// Locking: the shard's.
    func count(_ id: UInt64, in scope: ScopeNodes) -> UnsafeMutablePointer<Node>? {
        guard let node = nodes.find(id) else { return nil }
        return scope.withShard(of: node.pointee.key) { $0.count(id, in: nodes) }
    }

    /// What is at an index of the table, if it is a live node with a descriptor. The scope's directory of nodes is asked afterwards, under its lock,
    /// so a cell that changes hands meanwhile is only a miss.
    private func identity(at index: UInt32, _ takesDirectories: Bool) -> (id: UInt64, key: NodeKey, scope: ScopeNodes)? {
        guard let (id, node) = nodes.element(at: index), node.pointee.pinState.load(ordering: .relaxed) & Node.descriptorMask != 0,
            takesDirectories || node.pointee.type != S_IFDIR
        else { return nil }
        let (key, number) = (node.pointee.key, node.pointee.scope)
        guard let scope = scope(number), nodes.find(id) != nil else { return nil }
        return (id, key, scope)
    }
}
