import GrantSystem
import Synchronization

/// The nodes of one scope, and the descriptors of the scope as a whole.
///
/// Locking: each shard's lock is rank 2: while it is held, no system call, no reply, no notification.
public final class ScopeNodes: @unchecked Sendable {
    // Safe to share: the index of each shard is behind its lock, the rest is fixed or atomic.
    static let shardCount = 8
    public let scope: UInt32
    /// Retained by this object and used unretained: each request with a name takes one of these locks.
    private let shards: UnsafeMutablePointer<Unmanaged<Lock<NodeIndex>>>
    /// The descriptor number of `baseReference`, or -1 once the scope is released.
    private let base: Atomic<Int32>
    private let baseReference: Lock<HandleBase?>
    /// Whether the daemon may open by handle there.
    public let opensByHandle: Bool
    /// No descriptor is opened for a node any more: the filesystem is to be unmounted.
    let isReleased = Atomic<Bool>(false)
    public var hasReleased: Bool { isReleased.load(ordering: .relaxed) }
    /// Whether mounts below the granted directory may be entered.
    public let crossesMounts: Bool
    /// Whether a server behind the filesystem checks permissions by itself: operations then use the caller's groups as well.
    public let usesCallerGroups: Bool

    /// How changes of names beside the mount are reported: a `ChangeWatch.Means`, or 0 when they are not.
    public let watchMeans = Atomic<UInt8>(0)
    /// statfs(2)'s f_fsid of the granted directory where its filesystem is watched; else 0.
    public let filesystem = Atomic<UInt64>(0)

    /// Renames below it are not reported: see `Containment`. Set once, before there are nodes.
    public let isUnwatched = Atomic<Bool>(false)

    /// Reasons why the kernel may cache nothing of the scope; 0 where it may.
    public let cacheBypass = Atomic<UInt8>(0)
    /// Another scope of the mount reaches the same files.
    public static let overlap: UInt8 = 1
    /// Claims are held here, which answers from the kernel's cache would not wait for.
    public static let claims: UInt8 = 2

    /// Whether listings carry attributes.
    public let readdirPlus = ReaddirPlusHeuristic()

    /// The granted directory's node. It keeps its descriptor until the scope is released. Set once, before the scope is shared.
    public internal(set) nonisolated(unsafe) var root: (id: UInt64, key: NodeKey)?
    /// For a grant of one file: the document's place, set once before the scope is shared; and the node of the directory that shows
    /// it in the view, else 0.
    public nonisolated(unsafe) var document: DocumentPlace?
    public let documentRoot = Atomic<UInt64>(0)
    /// The granted directory's last reported attributes, to be repeated without asking its filesystem. Rank 2, for a moment.
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

    /// For a caller that has a node of the scope pinned and has checked that it is not released: it stays open until the pin is
    /// gone.
    var handleBase: Int32? {
        let base = base.load(ordering: .acquiring)
        return base < 0 ? nil : base
    }

    /// Call it once the scope is released and no node of it is pinned.
    func closeBase() {
        base.store(-1, ordering: .releasing)
        // Dropped outside of the lock, because that may close it.
        let reference = baseReference.withLock { reference in
            defer { reference = nil }
            return reference
        }
        _ = consume reference
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
