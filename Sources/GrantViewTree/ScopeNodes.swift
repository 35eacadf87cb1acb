import GrantSystem
import Synchronization

/// The nodes of one scope, and the descriptors of the scope as a whole.
///
/// Locking: each shard's lock is rank 2. While it is held, no system call is made, and no reply or
/// notification is sent.
public final class ScopeNodes: @unchecked Sendable {
    // Sendable: the index of each shard is behind its lock. All other fields are fixed, atomic,
    // locked, or set before sharing.
    static let shardCount = 8
    public let scope: UInt32
    /// Retained by this object and used unretained.
    ///
    /// Each request with a name takes one of these locks.
    private let shards: UnsafeMutablePointer<Unmanaged<Lock<NodeIndex>>>
    /// The descriptor number of `baseReference`, or -1 once the scope is released.
    private let base: Atomic<Int32>
    private let baseReference: Lock<HandleBase?>
    /// Whether the daemon may open by handle there.
    public let opensByHandle: Bool
    /// Whether no descriptor is opened for a node any more.
    ///
    /// The filesystem can then be unmounted.
    let isReleased = Atomic<Bool>(false)
    public var hasReleased: Bool { isReleased.load(ordering: .relaxed) }
    /// Whether mounts below the granted directory may be entered.
    public let crossesMounts: Bool
    /// Whether a server behind the filesystem checks permissions by itself.
    ///
    /// Operations then use the caller's groups as well.
    public let usesCallerGroups: Bool

    /// How changes of names on the host are reported.
    ///
    /// A `ChangeWatch.Means`, or 0 if they are not.
    public let watchMeans = Atomic<UInt8>(0)
    /// f_fsid of statfs(2) for the granted directory, if its filesystem is watched. Otherwise 0.
    public let filesystem = Atomic<UInt64>(0)

    /// Whether renames below it are not reported: see `Containment`.
    ///
    /// Set once, before there are nodes.
    public let isUnwatched = Atomic<Bool>(false)

    /// Whether directories that the kernel knows are not watched yet, after another daemon's end.
    public let hasUnwatched = Atomic<Bool>(false)
    /// Counts doubts about the places of nodes: see `NodeTree.settle`.
    public let doubts = Atomic<UInt64>(0)

    /// The rules of the grant, with what an operation must know of them.
    public let ruled = RuledScope()

    /// Reasons why the kernel may cache nothing of the scope. 0 if it may.
    public let cacheBypass = Atomic<UInt8>(0)
    /// Another scope of the mount reaches the same files.
    public static let overlap: UInt8 = 1
    /// Claims are held here, for which replies from the kernel's cache would not wait.
    public static let claims: UInt8 = 2

    /// Whether listings carry attributes.
    public let readdirPlus = ReaddirPlusHeuristic()

    /// The granted directory's node. It keeps its descriptor until the scope is released.
    ///
    /// Set once, before the scope is shared.
    public internal(set) nonisolated(unsafe) var root: (id: UInt64, key: NodeKey)?
    /// The place of the document, and the node of the directory that shows it.
    ///
    /// For a grant of one file. The place is set once before the scope is shared. The node is 0 if
    /// the view shows the file itself.
    public nonisolated(unsafe) var document: DocumentPlace?
    public let documentRoot = Atomic<UInt64>(0)
    /// The mount that all descriptors are on, if it shows other owners than the host's, until the scope is released.
    ///
    /// Rank 2, held for a moment.
    package let mountCopy = Lock<MountCopy?>(nil)
    /// The granted directory's last reported attributes.
    ///
    /// They are repeated without a call to its filesystem. Rank 2, held for a moment.
    public let rootStatus = Lock<FileStatus?>(nil)

    /// `opensByHandle`: set for a scope whose base is gone.
    init(scope: UInt32, handleBase: HandleBase?, crossesMounts: Bool, usesCallerGroups: Bool, opensByHandle: Bool = false) {
        self.scope = scope
        self.usesCallerGroups = usesCallerGroups
        self.crossesMounts = crossesMounts
        base = Atomic(handleBase?.number ?? -1)
        baseReference = Lock(handleBase)
        self.opensByHandle = opensByHandle || handleBase != nil
        shards = .allocate(capacity: Self.shardCount)
        for number in 0..<Self.shardCount { (shards + number).initialize(to: .passRetained(Lock(NodeIndex()))) }
    }

    deinit {
        for number in 0..<Self.shardCount { shards[number].release() }
        shards.deallocate()
    }

    /// The base's descriptor, which stays open while the caller has a node pinned.
    ///
    /// The caller has checked after pinning that the scope is not released.
    var handleBase: Int32? {
        let base = base.load(ordering: .acquiring)
        return base < 0 ? nil : base
    }

    /// Closes the base. Call it once the scope is released and no node of it is pinned.
    func closeBase() {
        base.store(-1, ordering: .releasing)
        // Dropped outside of the lock, because that may close it.
        let reference = baseReference.withLock { reference in
            defer { reference = nil }
            return reference
        }
        _ = consume reference
        let copy = mountCopy.withLock { copy in
            defer { copy = nil }
            return copy
        }
        _ = consume copy
    }

    /// Runs `body` with the index that has, or would have, the key.
    ///
    /// Locking: the shard's.
    @inline(__always)
    func withShard<Result>(of key: NodeKey, _ body: (inout NodeIndex) -> Result) -> Result {
        withShard(Int(truncatingIfNeeded: key.hash & 7), body)
    }

    @inline(__always)
    private func withShard<Result>(_ number: Int, _ body: (inout NodeIndex) -> Result) -> Result {
        shards[number]._withUnsafeGuaranteedRef { $0.withLock(body) }
    }

    /// Calls `body` with each node. Those that are added or removed meanwhile may be left out.
    ///
    /// Locking: the shard's, for a part of its nodes each time. `body` runs under it.
    func forEach(in nodes: borrowing SlotTable<Node>, _ body: (UnsafeMutablePointer<Node>) -> Void) {
        for number in 0..<Self.shardCount {
            var place = NodeIndex.Place()
            while !withShard(number, { $0.visit(from: &place, in: nodes, body) }) {}
        }
    }

    /// Restores a node from another daemon, departed or not.
    func takeOver(_ id: UInt64, _ key: NodeKey, hasDeparted: Bool, in nodes: borrowing SlotTable<Node>) {
        withShard(of: key) { index in
            if hasDeparted { index.takeOver(departed: id) } else { index.insert(id, key, in: nodes) }
        }
    }

    /// The granted directory's identity.
    public var rootKey: NodeKey? { root?.key }

    /// The handle base's descriptor number, or -1.
    public var baseNumber: Int32 { base.load(ordering: .acquiring) }

    /// How many nodes of the scope the kernel knows.
    public var count: Int { (0..<Self.shardCount).reduce(0) { sum, number in sum + withShard(number) { $0.count } } }

    /// Their current ids, including departed nodes.
    public var ids: [UInt64] { (0..<Self.shardCount).flatMap { withShard($0) { $0.ids } } }
}
