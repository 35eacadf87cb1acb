import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// Which file of which scope a node stands for. A re-used inode number has another birth time, so it is another node.
public struct NodeKey: Hashable, Sendable {
    public let device: UInt64
    public let inode: UInt64
    /// Birth time in nanoseconds; 0 where the filesystem keeps none.
    public let birth: Int64

    @inline(__always)
    public init(_ status: borrowing FileStatus) {
        device = UInt64(truncatingIfNeeded: status.st.st_dev)
        inode = UInt64(truncatingIfNeeded: status.st.st_ino)
        birth = status.has_birth ? status.birth_seconds &* 1_000_000_000 &+ Int64(truncatingIfNeeded: status.birth_nanoseconds) : 0
    }

    /// Of the file behind an O_PATH descriptor; nil when it cannot be asked.
    public init?(descriptor: Int32) {
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Of a file that another daemon knew.
    init(device: UInt64, inode: UInt64, birth: Int64) { (self.device, self.inode, self.birth) = (device, inode, birth) }

    var hash: UInt64 {
        var x = inode &* 0x9E37_79B9_7F4A_7C15
        x ^= UInt64(bitPattern: birth) &* 0xC2B2_AE3D_27D4_EB4F
        x ^= device &* 0x1656_67B1_9E37_79F9
        return x ^ (x >> 29)
    }
}

/// Who has a locked file open besides the programs of this mount. While it is `sole`, nobody can have changed it beside the mount or see what is
/// in it, so a lock needs no fresh view of the file and its end nothing to be written down.
public enum Oplock: UInt8, AtomicRepresentable, Sendable {
    /// Nobody has looked.
    case unknown
    /// Nobody has looked, as it was hardly locked when it was open last: looking costs more than a lock or two.
    case rare
    /// Nobody has looked since it was opened; it was locked again and again before, so it is looked at when it is opened.
    case expected
    /// Somebody else, or that cannot be found out.
    case shared
    /// Nobody, but the kernel may still have something of the file from before that was found out.
    case stale
    /// Nobody, and the kernel's view of it is fresh.
    case sole
}

/// One file as the kernel knows it through this mount: its identity, how often the kernel counts it, and a way to its inode,
/// which is an O_PATH descriptor, or, while the descriptor's number is lent to another node, a file handle or the place where it was
/// last found.
public struct Node: ~Copyable {
    // In an order without holes: there may be millions.
    public let key: NodeKey
    // The tree keeps a scope's nodes together for as long as one of them lives.
    private let ownerReference: Unmanaged<ScopeNodes>
    /// How many lookups the kernel has not yet forgotten. Changed under the shard's lock.
    let lookups: Atomic<UInt64>
    /// `retired << 63 | pins << 32 | descriptor + 1`. A descriptor is closed only while nobody pins it.
    let pinState: Atomic<UInt64>
    let handle: StoredHandle
    /// Where the daemon may not open by handle: the name it was last found under, ending with a NUL, in a block of its own; 0 when that
    /// name was removed. Together with `parent` changed and read under the shard's lock.
    let name: Atomic<UInt>
    /// The directory it was last found in, a node id.
    public let parent: Atomic<UInt64>
    /// When it was last found there, CLOCK_MONOTONIC in nanoseconds.
    public let found: Atomic<Int64>
    /// When one of several names of it was last removed, CLOCK_MONOTONIC in nanoseconds; 0 when none was.
    public let unlinked: Atomic<Int64>
    /// Of a directory: when the kernel was last told of an entry's attributes, by a listing or alone, CLOCK_MONOTONIC in nanoseconds.
    public let renewed: Atomic<Int64>
    /// mtime and size when the kernel was last told to keep the data, as one mix of bits: see `ViewFS` on opening. Under write-back, where it keeps them
    /// in any case, the mtime that it shows: see `ViewFS.noteTime`.
    public let dataVersion: Atomic<UInt64>
    public let scope: UInt32
    /// S_IFMT of the file: an inode never changes its type.
    public var type: mode_t { mode_t(truncatingIfNeeded: shortType) }
    private let shortType: UInt16
    /// Of a file: something is locked in it, or somebody waits for a lock. Whoever closes it looks here before he looks for locks.
    public let isLocked: Atomic<Bool>
    /// How often the file is open, and how often for writing: such a file's pages can become dirty again behind an invalidation.
    public let openers: Atomic<UInt32>
    public let writers: Atomic<UInt32>
    /// See `ScopeNodes.usesCallerGroups`.
    public let usesCallerGroups: Bool
    /// Its name was removed, so no handle would find it again: the descriptor is not lent.
    let keepsDescriptor: Atomic<Bool>
    /// Whether an opening of the removed file has been answered with ESTALE already: see `ViewFS` on opening.
    public let reportedStale: Atomic<Bool>
    /// Of a directory: files in it have been locked, so its names are for programs that watch each other and are never cached.
    public let isShared: Atomic<Bool>
    /// Of a file: who else has it open, as far as that was looked at.
    public let oplock: Atomic<Oplock>
    /// Of a file: how many locks were asked for since it was opened, `Node.oplockThreshold` at the most.
    public let lockRequests: Atomic<UInt8>
    /// Of a directory: entries went out without attributes when it was listed last, or the kernel lists them by itself and its attributes are old.
    public let wasListedBare: Atomic<Bool>
    /// Of a directory: changes in it are told, see `WatchedDirectories`.
    public let isWatched: Atomic<Bool>

    /// Under write-back: the file may have another mtime than the kernel shows.
    public let isTimeDirty: Atomic<Bool>

    /// Bits of `Containment`. What refuses is set under the shard's lock.
    public let containment: Atomic<UInt8>
    /// Where moves are not told: when it was last seen where it lies, CLOCK_MONOTONIC in milliseconds, without the higher bits.
    public let lookedAt: Atomic<UInt32>

    /// Where the kernel opens files by itself (docs/decisions/zero-message-open.md): what the daemon has open of the node for reading and for writing,
    /// numbers of `OpenFiles` or `OpenDirectories`; 0 for nothing. Used and taken away as `Node+Kept.swift` says.
    let cachedReader: Atomic<UInt64>
    let cachedWriter: Atomic<UInt64>
    let cacheUses: Atomic<UInt32>
    /// Used since somebody last looked whether it still is.
    let wasCacheUsed: Atomic<Bool>
    /// There too: the kernel may have pages of the file, which may be dirty.
    public let mayHavePages: Atomic<Bool>
    /// Who last asked to write to the file; `writerUser` is .max when nobody has.
    let writerUser: Atomic<UInt32>
    let writerGroup: Atomic<UInt32>
    let writerProcess: Atomic<Int32>

    /// So many locks are worth a look at who else has the file open.
    public static let oplockThreshold: UInt8 = 8

    static let retiredBit: UInt64 = 1 << 63
    static let pin: UInt64 = 1 << 32
    static let descriptorMask: UInt64 = 0xffff_ffff

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
        lookedAt = Atomic(0)
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

    /// Runs `body` with the scope's nodes without counting a reference to them, which every worker would do with every request.
    @inline(__always)
    public func withOwner<Result>(_ body: (ScopeNodes) -> Result) -> Result { ownerReference._withUnsafeGuaranteedRef(body) }

    /// Whether the kernel is to keep nothing of the scope: see `ScopeNodes.cacheBypass`.
    @inline(__always)
    public var bypassesCache: Bool { withOwner { $0.cacheBypass.load(ordering: .relaxed) != 0 } }

    /// How many lookups the kernel has not yet forgotten, and one for each operation that counts it for itself.
    public var lookupCount: UInt64 { lookups.load(ordering: .relaxed) }

    var pins: UInt64 { (pinState.load(ordering: .acquiring) & ~Self.retiredBit) >> 32 }
}
