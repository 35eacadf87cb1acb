import GrantSystem

/// The nodes of watched directories, by the key of the watch.
///
/// Forgotten nodes stay until a sweep.
///
/// Locking: one lock of rank 2, taken once for each directory that the kernel gets to know, and for
/// each change.
public final class WatchedDirectories: Sendable {
    /// A directory's node: its id, and the values needed to pin it.
    public struct Place: Sendable {
        public let node: UInt64
        public let identity: NodeKey
        public let scope: UInt32

        public init(node: UInt64, identity: NodeKey, scope: UInt32) {
            self.node = node
            self.identity = identity
            self.scope = scope
        }
    }

    private let table = Lock<[UInt64: [Place]]>([:])

    public init() {}

    public var count: Int { table.withLock { $0.count } }

    public func add(_ place: Place, under key: UInt64) {
        table.withLock { table in
            if table[key]?.contains(where: { $0.node == place.node }) != true { table[key, default: []].append(place) }
        }
    }

    /// The nodes of one directory, one for each grant that leads to it.
    public func places(under key: UInt64) -> [Place] { table.withLock { $0[key] ?? [] } }

    public func remove(_ key: UInt64) { table.withLock { $0[key] = nil } }

    /// Removes nodes that are no longer live. Returns the keys that have none left.
    public func sweep(isLive: (Place) -> Bool) -> [UInt64] {
        table.withLock { table in
            var ended: [UInt64] = []
            var left: [UInt64: [Place]] = [:]
            for (key, nodes) in table {
                let live = nodes.filter(isLive)
                if live.isEmpty { ended.append(key) } else { left[key] = live }
            }
            if !ended.isEmpty { table = left }
            return ended
        }
    }
}
