import CLinux
import LinuxFS
import Synchronization

/// The nodes of one scope, and the descriptors that belong to the scope as a whole.
///
/// Locking: each shard's lock is rank 2: while it is held, no system call, no reply, no notification.
public final class ScopeNodes: @unchecked Sendable {
    // Safe to share: the index of each shard is behind its lock, the rest is fixed.
    static let shardCount = 8
    public let scope: UInt32
    let shards: [Lock<NodeIndex>]
    /// An open directory on the granted filesystem, for open_by_handle_at; nil where the daemon may not open by handle.
    let handleBase: Int32?
    /// The mount the grant lies in: nothing of another one is entered.
    public let crossesMounts: Bool

    /// Whether files of the scope can be opened by handle.
    public var opensByHandle: Bool { handleBase != nil }
    /// How changes of names beside the mount are told: a `ChangeWatch.Means`, or 0 when they are not.
    public let watchMeans = Atomic<UInt8>(0)
    /// statfs(2)'s f_fsid of the granted directory, where its filesystem is watched; else 0.
    public let filesystem = Atomic<UInt64>(0)

    /// Whether another scope of the mount reaches the same files: then nothing of it is kept by the kernel without asking.
    public let isOverlapped = Atomic<Bool>(false)

    init(scope: UInt32, handleBase: consuming FileDescriptor?, crossesMounts: Bool) {
        self.scope = scope
        self.crossesMounts = crossesMounts
        if let base = consume handleBase { self.handleBase = base.release() } else { self.handleBase = nil }
        shards = (0..<Self.shardCount).map { _ in Lock(NodeIndex()) }
    }

    deinit { if let handleBase { _ = clinux_close(handleBase) } }

    func shard(of key: NodeKey) -> Lock<NodeIndex> { shards[Int(truncatingIfNeeded: key.hash & 7)] }

    /// How many nodes of the scope the kernel knows.
    public var count: Int { shards.reduce(0) { sum, shard in sum + shard.withLock { $0.count } } }

    /// Their ids at this moment.
    public var ids: [UInt64] {
        var result: [UInt64] = []
        for shard in shards { result.append(contentsOf: shard.withLock { $0.ids }) }
        return result
    }
}
