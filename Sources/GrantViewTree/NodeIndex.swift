import GrantSystem

/// Finds nodes by key: a hash table of node ids with linear probing.
///
/// Each shard of a scope has one. Locking: belongs to the shard's lock.
struct NodeIndex {
    private static let empty: UInt64 = 0
    private static let tombstone: UInt64 = 1
    private var slots: [UInt64] = []
    private var present = 0
    private var filled = 0
    /// How often ids have got other places.
    private var rebuilt: UInt = 0
    /// Nodes that left the granted directory and that the kernel has not forgotten.
    ///
    /// No lookup finds them.
    private var departed: Set<UInt64> = []
    /// It is false for nearly all scopes, which keeps the functions below off the hot path.
    private var hasDeparted = false

    var count: Int { present + departed.count }

    @inline(never)
    private func isDeparted(_ id: UInt64) -> Bool { departed.contains(id) }

    @inline(never)
    private mutating func removeDeparted(_ id: UInt64) -> Bool {
        guard departed.remove(id) != nil else { return false }
        hasDeparted = !departed.isEmpty
        return true
    }

    /// The id whose node has `key`.
    func find(_ key: NodeKey, in nodes: borrowing SlotTable<Node>) -> UInt64? {
        guard !slots.isEmpty else { return nil }
        var place = Int(truncatingIfNeeded: key.hash >> 3) & (slots.count - 1)
        while slots[place] != Self.empty {
            let id = slots[place]
            if id != Self.tombstone, let node = nodes.find(id), node.pointee.key == key { return id }
            place = (place + 1) & (slots.count - 1)
        }
        return nil
    }

    /// Counts one more lookup of a node in the index, which keeps it alive.
    func count(_ id: UInt64, in nodes: borrowing SlotTable<Node>) -> UnsafeMutablePointer<Node>? {
        // Nodes in the index are alive. Only a search tells whether this one is in it, because it
        // may just be ending.
        guard let node = nodes.find(id), (hasDeparted && isDeparted(id)) || find(node.pointee.key, in: nodes) == id else { return nil }
        node.pointee.lookups.wrappingAdd(1, ordering: .relaxed)
        return node
    }

    /// Adds an id whose key is not in the index.
    mutating func insert(_ id: UInt64, _ key: NodeKey, in nodes: borrowing SlotTable<Node>) {
        if (filled + 1) * 4 > slots.count * 3 { rebuild(in: nodes) }
        var place = Int(truncatingIfNeeded: key.hash >> 3) & (slots.count - 1)
        while slots[place] > Self.tombstone { place = (place + 1) & (slots.count - 1) }
        if slots[place] == Self.empty { filled += 1 }
        slots[place] = id
        present += 1
    }

    /// Removes a node from lookups by key.
    ///
    /// So a later lookup of its file makes another node.
    mutating func depart(_ id: UInt64, _ key: NodeKey, in nodes: borrowing SlotTable<Node>) {
        guard find(key, in: nodes) == id else { return }
        remove(id, key, in: nodes)
        departed.insert(id)
        hasDeparted = true
    }

    mutating func takeOver(departed id: UInt64) {
        departed.insert(id)
        hasDeparted = true
    }

    mutating func remove(_ id: UInt64, _ key: NodeKey, in nodes: borrowing SlotTable<Node>) {
        if hasDeparted, removeDeparted(id) { return }
        guard !slots.isEmpty else { return }
        var place = Int(truncatingIfNeeded: key.hash >> 3) & (slots.count - 1)
        while slots[place] != Self.empty {
            if slots[place] == id {
                slots[place] = Self.tombstone
                present -= 1
                // Shrinks as the kernel forgets nodes.
                if slots.count > 64, present * 8 < slots.count { rebuild(in: nodes) }
                return
            }
            place = (place + 1) & (slots.count - 1)
        }
    }

    var ids: [UInt64] { here + departed }

    private var here: [UInt64] { slots.filter { $0 > Self.tombstone } }

    /// The part of a table that `visit` has reached.
    struct Place {
        fileprivate var slot = 0
        fileprivate var rebuilt: UInt?
    }

    /// Calls `body` with some of the nodes, departed ones last. Returns whether those were all.
    ///
    /// Each node that is present from the first call to the last one is visited at least once.
    func visit(from place: inout Place, in nodes: borrowing SlotTable<Node>, _ body: (UnsafeMutablePointer<Node>) -> Void) -> Bool {
        if place.rebuilt != rebuilt { place = Place(slot: 0, rebuilt: rebuilt) }
        let end = min(place.slot + Self.visitedAtOnce, slots.count)
        for number in place.slot..<end where slots[number] > Self.tombstone {
            if let node = nodes.find(slots[number]) { body(node) }
        }
        place.slot = end
        if end < slots.count { return false }
        for id in departed { if let node = nodes.find(id) { body(node) } }
        return true
    }

    /// Requests wait for the shard meanwhile.
    private static let visitedAtOnce = 512

    private mutating func rebuild(in nodes: borrowing SlotTable<Node>) {
        let old = here
        rebuilt += 1
        var size = 16
        while size < (old.count + 1) * 2 { size *= 2 }
        slots = [UInt64](repeating: Self.empty, count: size)
        filled = 0
        present = 0
        for id in old {
            guard let node = nodes.find(id) else { continue }
            var place = Int(truncatingIfNeeded: node.pointee.key.hash >> 3) & (size - 1)
            while slots[place] != Self.empty { place = (place + 1) & (size - 1) }
            slots[place] = id
            filled += 1
            present += 1
        }
    }
}
