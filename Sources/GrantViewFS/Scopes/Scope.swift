import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// A grant as it is live in this mount: everything reached through the grant belongs to its scope and no other.
public final class Scope: @unchecked Sendable {
    // Safe to share: fixed after `init`, but for what `closing` guards.
    public let id: ScopeID
    public let grant: GrantID
    /// Which activation of the grant this scope serves; a later one gets a scope of its own.
    public let activation: Int64
    let nodes: ScopeNodes
    /// The granted directory's node, counted once for the scope itself.
    let rootNode: UInt64
    /// The directory as it was when the scope was made: enough to answer a lookup of its name without asking its filesystem, which
    /// may hang while the kernel holds the root's lock. Its attributes are asked for afterwards.
    let rootStatus: FileStatus
    /// The number of the mount that the directory was opened through, which no other mount ever has; nil where the kernel keeps none.
    public let mount: UInt64?
    /// See `FilesystemKind`.
    let isLocal: Bool
    /// Whether renames and removals of it and of every directory above are told.
    let isMoveTold: Bool
    /// `HostWatch.movesSeen` when the granted directory was last found where it was; 0 before.
    let movesSeen = Atomic<UInt64>(0)
    /// Whether a withdrawal of everything was carried through.
    let isClosed = Atomic<Bool>(false)
    /// Whether every descriptor of it has been let go.
    let releaseState = Atomic<ReleaseState>(.notYet)
    /// Whether the grant is meant to be read-only now: a narrowing that is overtaken by a widening does nothing.
    let wantsReadOnly: Atomic<Bool>
    /// What its filesystem last said of its space, and whether it is being asked just now.
    let space = Lock<statvfs?>(nil)
    let isAsking = Atomic<Bool>(false)
    /// How far the withdrawal has come that is being carried out; nil when there is none. Rank 2, held for a moment.
    let progress = Lock<ClosingProgress?>(nil)
    /// Rank 1: held by a revoker while it closes the scope. No request takes it.
    let closing = Lock(Closing())
    /// When its name was last looked up, CLOCK_MONOTONIC in nanoseconds; 0 before. Changed under the lock of the root's table.
    let named = Atomic<Int64>(0)
    /// The next lookup of its name makes the kernel drop what it knows below it: see `ViewFS.dropDentries`.
    let dropsOnNextLookup = Atomic<Bool>(false)

    /// Whether it is of one file and shows just that, under the grant's name.
    var isFile: Bool { nodes.document.map { !$0.isDirectory } ?? false }

    enum ReleaseState: UInt8, AtomicRepresentable { case notYet, underWay, done }

    struct Closing {
        var outcome: ClosingOutcome?
        /// What was withdrawn so far, and what the kernel has still to forget.
        var rest: (outcome: ClosingOutcome, invalidator: DataInvalidator, withdrawal: ViewFS.Withdrawal)?
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

/// How far a withdrawal has come in one mount.
public struct ClosingProgress: Sendable {
    public enum Stage: Sendable {
        /// Operations that were under way end, or are answered; counted.
        case draining
        /// What was written before is written back; bytes.
        case flushing
        /// The kernel forgets; inodes.
        case forgetting
    }

    public var stage: Stage
    public var done: UInt64 = 0
    /// nil where it is not known.
    public var total: UInt64?
}

/// What a revocation did in one mount.
public struct ClosingOutcome: Sendable {
    /// Nothing of the scope answers any more: gate shut, caches forgotten.
    public var isConfirmed = false
    public var milliseconds = 0.0
    /// Operations that were under way and ended by themselves.
    public var drained: UInt64 = 0
    public var flushedBytes: UInt64 = 0
    public var invalidatedInodes: UInt64 = 0
    /// Operations that still hang in the backing file system; their callers were released, their results are thrown away.
    public var pending: UInt64 = 0
    /// Where the kernel could not be made to forget yet, because a program holds a lock of the kernel's: names below the granted directory, as far as
    /// they are known, a few of them at the most. Everything else is in force.
    public var unforgotten: [[UInt8]] = []

    public init() {}

    /// In force, with nothing to report.
    public static var done: ClosingOutcome {
        var outcome = ClosingOutcome()
        outcome.isConfirmed = true
        return outcome
    }
}
