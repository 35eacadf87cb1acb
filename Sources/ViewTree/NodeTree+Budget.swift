import CLinux
import LinuxFS
import Synchronization

/// Counts the descriptors that nodes hold.
final class DescriptorBudget: Sendable {
    let limit: Int
    private let used = Atomic<Int>(0)
    let evicting = Atomic<Bool>(false)
    let hand = Atomic<UInt32>(0)

    init(limit: Int) { self.limit = limit }

    var inUse: Int { used.load(ordering: .relaxed) }

    /// Counts one more; true when that is more than the limit.
    func add() -> Bool { used.wrappingAdd(1, ordering: .relaxed).newValue > limit }
    func remove() { used.wrappingSubtract(1, ordering: .relaxed) }
}

extension NodeTree {
    /// Closes descriptors of nodes that nobody uses just now until an eighth of the budget is free, going round like the hand of
    /// a clock. One thread at a time; the others go on and find room again when it is through.
    ///
    /// Locking: the shards', one at a time, each for a moment.
    func evict() {
        guard budget.evicting.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged else { return }
        defer { budget.evicting.store(false, ordering: .releasing) }
        let goal = budget.limit - budget.limit / 8
        let limit = nodes.indexLimit
        var steps = limit
        while budget.inUse > goal, steps > 0 {
            steps -= 1
            let index = budget.hand.wrappingAdd(1, ordering: .relaxed).oldValue % max(limit, 1)
            guard let (id, key, scope) = identity(at: index), scope.opensByHandle, id != scope.root?.id else { continue }
            withNode(id, in: scope.shard(of: key)) { letGo($0, keepingHandle: true) }
        }
    }

    /// Runs `body` on a node that cannot end meanwhile, if it is still there: it is counted once more around it.
    ///
    /// Locking: the shard's, for a moment before and after.
    func withNode(_ id: UInt64, in shard: Lock<NodeIndex>, _ body: (UnsafeMutablePointer<Node>) -> Void) {
        guard let node = shard.withLock({ $0.count(id, in: nodes) }) else { return }
        body(node)
        forget(id, 1)
    }

    /// Runs `body` with the descriptor of a scope's root pinned (or a negative error number), from outside of any operation.
    ///
    /// Locking: as `withNode`.
    public func withRoot(of scope: ScopeNodes, _ body: (Int32) -> Void) {
        guard let root = scope.root else { return }
        withNode(root.id, in: scope.shard(of: root.key)) { node in
            body(pin(node))
            unpin(root.id, node)
        }
    }

    /// What is at an index of the table, if it is a live node. The scope's directory of nodes is asked afterwards, under its lock,
    /// so a cell that changes hands meanwhile is only a miss.
    private func identity(at index: UInt32) -> (id: UInt64, key: NodeKey, scope: ScopeNodes)? {
        guard let (id, node) = nodes.element(at: index) else { return nil }
        let (key, number) = (node.pointee.key, node.pointee.scope)
        guard let scope = scope(number), nodes.find(id) != nil else { return nil }
        return (id, key, scope)
    }
}
