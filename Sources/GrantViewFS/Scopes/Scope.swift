import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// A live grant in this mount.
///
/// Everything reached through the grant belongs to its scope and to no other.
public final class Scope: @unchecked Sendable {
    // Sendable: fixed after `init`, except for atomics and state behind locks.
    public let id: ScopeID
    public let grant: GrantID
    /// The activation of the grant that this scope serves. A later activation gets its own scope.
    public let activation: Int64
    let nodes: ScopeNodes
    /// The granted directory's node. The scope itself holds one lookup of it.
    let rootNode: UInt64
    /// The directory's attributes when the scope was made.
    ///
    /// They answer a lookup of its name without a call to its filesystem, which may hang while the
    /// kernel holds the root's lock. Current attributes are requested afterwards.
    let rootStatus: FileStatus
    /// The unique number of the mount through which the directory was opened.
    ///
    /// The kernel never reuses it. It is nil if the kernel does not report it.
    public let mount: UInt64?
    /// See `FilesystemKind`.
    let isLocal: Bool
    /// Whether the kernel reports moves and removals of the directory and its parents.
    let isMoveTold: Bool
    /// `HostWatch.movesSeen` when the granted directory was last found in its place. 0 before.
    let movesSeen = Atomic<UInt64>(0)
    /// Where a search by path last found the granted directory: it may have moved since.
    ///
    /// Rank 2, held for a moment.
    let lastPath = Lock<[UInt8]>([])
    /// Whether a full withdrawal was carried out.
    let isClosed = Atomic<Bool>(false)
    /// How far the scope's descriptors were released.
    let releaseState = Atomic<ReleaseState>(.notYet)
    /// Whether the grant should be read-only.
    ///
    /// A narrowing that a later widening has overtaken does nothing.
    let wantsReadOnly: Atomic<Bool>
    /// The last statfs(2) of its filesystem. `isAsking`: whether such a call is running.
    let space = Lock<statvfs?>(nil)
    let isAsking = Atomic<Bool>(false)
    /// The progress of the current withdrawal. It is nil if none is running.
    ///
    /// Rank 2, held for a moment.
    let progress = Lock<WithdrawalProgress?>(nil)
    /// Rank 1: held by a revoker while it closes the scope. No request takes it.
    let closing = Lock(WithdrawalState())
    /// When the scope's name was last looked up, by `Clock.monotonic` in nanoseconds.
    ///
    /// Until then it is 0. Changed under the lock of the root's table.
    let named = Atomic<Int64>(0)
    /// Whether the next lookup of its name drops the kernel's dentries below it.
    ///
    /// See `ViewFS.dropDentries`.
    let dropsOnNextLookup = Atomic<Bool>(false)

    /// Whether the rules of its grant apply: it is of a directory.
    public var isRuled: Bool { nodes.document == nil }
    /// Whether the grant is of one file, shown directly under the grant's name.
    var isFile: Bool { nodes.document.map { !$0.isDirectory } ?? false }

    enum ReleaseState: UInt8, AtomicRepresentable { case notYet, underWay, done }

    struct WithdrawalState {
        var outcome: WithdrawalOutcome?
        /// The work that was withdrawn so far, and the work that is left.
        var rest: (outcome: WithdrawalOutcome, work: WithdrawalRest, withdrawal: ViewFS.Withdrawal)?
        var isReleased = false
        var isEmpty = false
    }

    init(
        id: ScopeID, grant: GrantID, activation: Int64, nodes: ScopeNodes, rootNode: UInt64, rootStatus: FileStatus, mount: UInt64?,
        isLocal: Bool, isMoveTold: Bool, readOnly: Bool
    ) {
        self.id = id
        self.grant = grant
        self.activation = activation
        self.nodes = nodes
        self.rootNode = rootNode
        self.rootStatus = rootStatus
        self.mount = mount
        self.isLocal = isLocal
        self.isMoveTold = isMoveTold
        wantsReadOnly = Atomic(readOnly)
    }
}

/// The progress of a withdrawal in one mount.
public struct WithdrawalProgress: Sendable {
    public enum Stage: Sendable {
        /// Running operations end, or get their replies. Counted in operations.
        case draining
        /// The kernel writes back earlier writes. Counted in bytes.
        case flushing
        /// The kernel's caches are invalidated. Counted in inodes.
        case forgetting
    }

    public var stage: Stage
    public var done: UInt64 = 0
    /// It is nil if it is unknown.
    public var total: UInt64?
}

/// What a revocation did in one mount.
public struct WithdrawalOutcome: Sendable {
    /// Whether no access through the scope can succeed: gate shut, caches invalidated.
    public var isConfirmed = false
    public var milliseconds = 0.0
    /// Operations that were running and ended by themselves.
    public var drained: UInt64 = 0
    public var flushedBytes: UInt64 = 0
    public var invalidatedInodes: UInt64 = 0
    /// Operations that still hang in the backing filesystem.
    ///
    /// Their callers have received replies, and their results are discarded.
    public var pending: UInt64 = 0
    /// A few paths that the kernel could not invalidate yet, relative to the granted directory.
    ///
    /// A program holds a kernel lock that the invalidation needs. Everything else is in force.
    /// Unknown paths are omitted.
    public var unforgotten: [[UInt8]] = []
    /// A few processes that get no processor and have yet to process an earlier reply.
    public var processes: [Int32] = []
    /// Node ids of directories whose invalidation waits for a kernel lock of a program.
    ///
    /// A limited number of them.
    public var blockedDirectories: [UInt64] = []

    public init() {}

    /// A withdrawal in force, with nothing to report.
    public static var done: WithdrawalOutcome {
        var outcome = WithdrawalOutcome()
        outcome.isConfirmed = true
        return outcome
    }
}
