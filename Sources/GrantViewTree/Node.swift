import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// The identity of a node's file within its scope.
///
/// A reused inode number has another birth time, so it is another node.
public struct NodeKey: Hashable, Sendable {
    public let device: UInt64
    public let inode: UInt64
    /// Birth time in nanoseconds. It is 0 if the filesystem keeps none.
    public let birth: Int64

    @inline(__always)
    public init(_ status: borrowing FileStatus) {
        device = UInt64(truncatingIfNeeded: status.st.st_dev)
        inode = UInt64(truncatingIfNeeded: status.st.st_ino)
        birth = status.has_birth ? status.birth_seconds &* 1_000_000_000 &+ Int64(truncatingIfNeeded: status.birth_nanoseconds) : 0
    }

    /// The key of the file behind an O_PATH descriptor. The result is nil if it cannot be read.
    public init?(descriptor: Int32) {
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return nil }
        self.init(status)
    }

    /// The key of a file from another daemon.
    init(device: UInt64, inode: UInt64, birth: Int64) { (self.device, self.inode, self.birth) = (device, inode, birth) }

    var hash: UInt64 {
        var x = inode &* 0x9E37_79B9_7F4A_7C15
        x ^= UInt64(bitPattern: birth) &* 0xC2B2_AE3D_27D4_EB4F
        x ^= device &* 0x1656_67B1_9E37_79F9
        return x ^ (x >> 29)
    }
}

/// Whether other programs than those of this mount have a locked file open.
///
/// While it is `sole`, no other program can have changed the file or see its data. A lock then
/// needs no revalidation, and an unlock no write-back.
public enum Oplock: UInt8, AtomicRepresentable, Sendable {
    /// Not probed.
    case unknown
    /// Not probed: it was hardly locked when it was last open.
    ///
    /// A probe costs more than a lock or two.
    case rare
    /// Not probed since it was opened. It was locked often before, so it is probed on open.
    case expected
    /// Open elsewhere, or impossible to determine.
    case shared
    /// Open only here, but the kernel may still cache earlier data.
    case stale
    /// Open only here, and the kernel's cache is fresh.
    case sole
}

/// A file as the kernel knows it through this mount.
///
/// It has an identity, a lookup count, and a way to its inode. That is an O_PATH descriptor, or,
/// while the descriptor is evicted, a file handle or the name under which it was last found.
public struct Node: ~Copyable {
    // Ordered without padding: there may be millions.
    public let key: NodeKey
    // Unretained: the tree keeps a scope's nodes alive while any of them lives.
    private let ownerReference: Unmanaged<ScopeNodes>
    /// The kernel's lookup count. Changed under the shard's lock.
    let lookups: Atomic<UInt64>
    /// `retired << 63 | pins << 32 | descriptor + 1`. A pinned descriptor is never closed.
    let pinState: Atomic<UInt64>
    let handle: StoredHandle
    /// The last known name, if the daemon may not open by handle.
    ///
    /// NUL-terminated, in a block of its own. It is 0 if that name was removed. Read and changed
    /// together with `parent` under the shard's lock.
    let name: Atomic<UInt>
    /// The node id of the directory in which it was last found.
    public let parent: Atomic<UInt64>
    /// The time of that, CLOCK_MONOTONIC in nanoseconds.
    public let found: Atomic<Int64>
    /// When one of its several names was last removed, CLOCK_MONOTONIC in nanoseconds. 0 means
    /// never.
    public let unlinked: Atomic<Int64>
    /// Of a directory: when the kernel last got an entry's attributes.
    ///
    /// It gets them by a listing or a lookup. CLOCK_MONOTONIC in nanoseconds.
    public let renewed: Atomic<Int64>
    /// A hash of mtime and size when the kernel last began to keep its data.
    ///
    /// See `ViewFS` on opening. Under write-back the kernel keeps data in any case. Then it is the
    /// mtime that the kernel shows: see `ViewFS.captureShownTime`.
    public let dataVersion: Atomic<UInt64>
    public let scope: UInt32
    /// S_IFMT of the file, which an inode never changes.
    public var type: mode_t { mode_t(truncatingIfNeeded: shortType) }
    private let shortType: UInt16
    /// Of a file: whether a lock is held, or a request waits for one.
    ///
    /// close(2) checks this before it looks for locks.
    public let isLocked: Atomic<Bool>
    /// How often the file is open, and how often for writing.
    ///
    /// Pages of a file open for writing can become dirty again behind an invalidation.
    public let openers: Atomic<UInt32>
    public let writers: Atomic<UInt32>
    /// Of a file: it has been open for writing, or may have been.
    public let wasOpenForWriting: Atomic<Bool>
    /// See `ScopeNodes.usesCallerGroups`.
    public let usesCallerGroups: Bool
    /// Its last name was removed, so no handle would find it: its descriptor is not evicted.
    let keepsDescriptor: Atomic<Bool>
    /// Whether an open of the removed file has already failed with ESTALE.
    ///
    /// See `ViewFS` on opening.
    public let reportedStale: Atomic<Bool>
    /// Of a directory: files in it were locked.
    ///
    /// So programs communicate by its names, which are never cached.
    public let isShared: Atomic<Bool>
    /// Of a file: the result of the last probe for other openers.
    public let oplock: Atomic<Oplock>
    /// Of a file: lock requests since it was opened, at most `Node.oplockThreshold`.
    public let lockRequests: Atomic<UInt8>
    /// Of a directory: its last listing omitted attributes.
    ///
    /// Or the kernel lists it from a cache with old attributes.
    public let wasListedBare: Atomic<Bool>
    /// Of a directory: it is watched for changes, see `WatchedDirectories`.
    public let isWatched: Atomic<Bool>

    /// Under write-back: the file's mtime may differ from the mtime that the kernel shows.
    public let isTimeDirty: Atomic<Bool>

    /// Bits of `Containment`. Refusing bits are set under the shard's lock.
    public let containment: Atomic<UInt8>
    /// Of a node that has left its grant: the kernel caches nothing of it any more.
    public let isForgotten: Atomic<Bool>
    /// When its place was last checked, if renames are not reported.
    ///
    /// CLOCK_MONOTONIC in milliseconds, lower 32 bits.
    public let lookedAt: Atomic<UInt32>

    /// Of a directory in a scope with rules: `generation << 32 | folding << 30 | state`.
    ///
    /// See `RuledDirectory`.
    public let ruleState: Atomic<UInt64>

    /// The cached opens for reading and for writing, if the kernel opens files by itself.
    ///
    /// See docs/decisions/caching.md. They are numbers of `OpenFiles` or
    /// `OpenDirectories`, 0 for none. For their use see `Node+CachedOpens.swift`.
    let cachedReader: Atomic<UInt64>
    let cachedWriter: Atomic<UInt64>
    let cacheUses: Atomic<UInt32>
    /// Used since the last sweep.
    let wasCacheUsed: Atomic<Bool>
    /// Also in that case: whether the kernel may have pages of the file, which may be dirty.
    public let mayHavePages: Atomic<Bool>
    /// The last caller that requested a write. `writerUser` is .max if there is none.
    let writerUser: Atomic<UInt32>
    let writerGroup: Atomic<UInt32>
    let writerProcess: Atomic<Int32>

    /// The number of lock requests from which on a probe is worthwhile.
    public static let oplockThreshold: UInt8 = 8

    static let retiredBit: UInt64 = 1 << 63
    static let pin: UInt64 = 1 << 32
    static let descriptorMask: UInt64 = 0xffff_ffff

    @inline(__always)
    init(key: NodeKey, owner: ScopeNodes, type: mode_t, descriptor: Int32) {
        self.key = key
        scope = owner.scope
        usesCallerGroups = owner.usesCallerGroups
        ownerReference = Unmanaged.passUnretained(owner)
        // S_IFMT is in the lower 16 bits.
        shortType = UInt16(truncatingIfNeeded: type & S_IFMT)
        isLocked = Atomic(false)
        lookups = Atomic(1)
        pinState = Atomic(UInt64(truncatingIfNeeded: UInt32(bitPattern: descriptor &+ 1)))
        handle = StoredHandle()
        name = Atomic(0)
        keepsDescriptor = Atomic(false)
        openers = Atomic(0)
        writers = Atomic(0)
        wasOpenForWriting = Atomic(false)
        parent = Atomic(0)
        found = Atomic(0)
        unlinked = Atomic(0)
        reportedStale = Atomic(false)
        isShared = Atomic(false)
        oplock = Atomic(.unknown)
        lockRequests = Atomic(0)
        wasListedBare = Atomic(false)
        renewed = Atomic(0)
        isWatched = Atomic(false)
        isTimeDirty = Atomic(false)
        containment = Atomic(owner.isUnwatched.load(ordering: .relaxed) ? Containment.isUnwatched : 0)
        isForgotten = Atomic(false)
        lookedAt = Atomic(0)
        ruleState = Atomic(0)
        dataVersion = Atomic(0)
        cachedReader = Atomic(0)
        cachedWriter = Atomic(0)
        cacheUses = Atomic(0)
        wasCacheUsed = Atomic(false)
        mayHavePages = Atomic(false)
        writerUser = Atomic(.max)
        writerGroup = Atomic(.max)
        writerProcess = Atomic(0)
    }

    deinit {
        free(UnsafeMutableRawPointer(bitPattern: name.load(ordering: .relaxed)))
    }

    public var owner: ScopeNodes { ownerReference.takeUnretainedValue() }

    /// Runs `body` with the scope's nodes, unretained.
    ///
    /// Otherwise every worker would count references on every request.
    @inline(__always)
    public func withOwner<Result>(_ body: (ScopeNodes) -> Result) -> Result { ownerReference._withUnsafeGuaranteedRef(body) }

    /// Whether the kernel may cache nothing of the scope: see `ScopeNodes.cacheBypass`.
    @inline(__always)
    public var bypassesCache: Bool { withOwner { $0.cacheBypass.load(ordering: .relaxed) != 0 } }

    /// The kernel's lookups, and one for each operation that pins the node by a count.
    public var lookupCount: UInt64 { lookups.load(ordering: .relaxed) }

    /// How many operations use its descriptor, or keep it from being closed.
    public var pins: UInt64 { (pinState.load(ordering: .acquiring) & ~Self.retiredBit) >> 32 }
}
