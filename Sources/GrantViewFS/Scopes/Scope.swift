import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// A live grant in this mount: everything reached through the grant belongs to its scope and no other.
public final class Scope: @unchecked Sendable {
    // Safe to share: fixed after `init`, but for what `closing` guards.
    public let id: ScopeID
    public let grant: GrantID
    /// Which activation of the grant this scope serves; a later one gets a scope of its own.
    public let activation: Int64
    let nodes: ScopeNodes
    /// The granted directory's node. The scope itself holds one lookup of it.
    let rootNode: UInt64
    /// The directory's attributes when the scope was made: enough to answer a lookup of its name without asking its filesystem,
    /// which may hang while the kernel holds the root's lock. Its current attributes are requested afterwards.
    let rootStatus: FileStatus
    /// The number of the mount through which the directory was opened, which no other mount ever has; nil where the kernel has
    /// none.
    public let mount: UInt64?
    /// See `FilesystemKind`.
    let isLocal: Bool
    /// Whether renames and removals of the directory and of every directory above it are reported.
    let isMoveTold: Bool
    /// `HostWatch.movesSeen` when the granted directory was last found in its place; 0 before.
    let movesSeen = Atomic<UInt64>(0)
    /// Whether a full withdrawal was carried out.
    let isClosed = Atomic<Bool>(false)
    /// Whether all of its descriptors were released.
    let releaseState = Atomic<ReleaseState>(.notYet)
    /// Whether the grant should be read-only: a narrowing that was overtaken by a widening does nothing.
    let wantsReadOnly: Atomic<Bool>
    /// The last statfs(2) of its filesystem, and whether a call is under way.
    let space = Lock<statvfs?>(nil)
    let isAsking = Atomic<Bool>(false)
    /// The progress of the withdrawal that is under way; nil when there is none. Rank 2, held for a moment.
    let progress = Lock<WithdrawalProgress?>(nil)
    /// Rank 1: held by a revoker while it closes the scope. No request takes it.
    let closing = Lock(WithdrawalState())
    /// When its name was last looked up: `Clock.monotonic`, nanoseconds; 0 before. Changed under the lock of the root's table.
    let named = Atomic<Int64>(0)
    /// Whether the next lookup of its name makes the kernel drop its dentries below it: see `ViewFS.dropDentries`.
    let dropsOnNextLookup = Atomic<Bool>(false)

    /// Whether the grant is of one file, shown directly under the grant's name.
    var isFile: Bool { nodes.document.map { !$0.isDirectory } ?? false }

    enum ReleaseState: UInt8, AtomicRepresentable { case notYet, underWay, done }

    struct WithdrawalState {
        var outcome: WithdrawalOutcome?
        /// What was withdrawn so far, and what is left.
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
        /// Operations under way end, or are answered; in operations.
        case draining
        /// Earlier writes are written back; in bytes.
        case flushing
        /// The kernel's caches are invalidated; in inodes.
        case forgetting
    }

    public var stage: Stage
    public var done: UInt64 = 0
    /// nil when it is unknown.
    public var total: UInt64?
}

/// What a revocation did in one mount.
public struct WithdrawalOutcome: Sendable {
    /// Nothing of the scope answers any more: gate shut, caches invalidated.
    public var isConfirmed = false
    public var milliseconds = 0.0
    /// Operations that were under way and ended by themselves.
    public var drained: UInt64 = 0
    public var flushedBytes: UInt64 = 0
    public var invalidatedInodes: UInt64 = 0
    /// Operations that still hang in the backing filesystem; their callers were answered, their results are discarded.
    public var pending: UInt64 = 0
    /// What the kernel could not invalidate yet because a program holds a lock of the kernel's: paths below the granted directory,
    /// as far as they are known, a few at most. Everything else is in force.
    public var unforgotten: [[UInt8]] = []
    /// Processes that have yet to process a reply from before, and get no processor: a few at most.
    public var processes: [Int32] = []

    public init() {}

    /// In force, with nothing to report.
    public static var done: WithdrawalOutcome {
        var outcome = WithdrawalOutcome()
        outcome.isConfirmed = true
        return outcome
    }
}
