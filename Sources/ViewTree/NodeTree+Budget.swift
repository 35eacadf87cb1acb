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
            guard let (id, key, scope) = identity(at: index), scope.handleBase != nil else { continue }
            withNode(id, in: scope.shard(of: key)) { letGo($0, keepingHandle: true) }
        }
    }

    /// Runs `body` on a node that cannot end meanwhile: it is counted once more around it.
    func withNode(_ id: UInt64, in shard: Lock<NodeIndex>, _ body: (UnsafeMutablePointer<Node>) -> Void) {
        let node = shard.withLock { index -> UnsafeMutablePointer<Node>? in
            guard let node = nodes.find(id), node.pointee.lookups.load(ordering: .relaxed) > 0 else { return nil }
            node.pointee.lookups.wrappingAdd(1, ordering: .relaxed)
            return node
        }
        guard let node else { return }
        body(node)
        forget(id, 1)
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
