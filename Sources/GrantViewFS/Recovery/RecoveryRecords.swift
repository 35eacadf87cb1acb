import GrantCoordinator
import GrantFUSE
import GrantLocks
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// Records the state that the next daemon needs if this one dies.
///
/// They lie in memory that outlives the daemon, like the tables of nodes, open files and open
/// directories. A record is written before the object that it describes can be used, and removed
/// before its descriptor is closed.
public final class RecoveryRecords: LockRecorder {
    /// A live grant.
    struct ScopeRecord {
        var scope: UInt32
        /// The handle base, or -1.
        var base: Int32
        var grant: (high: UInt64, low: UInt64)
        var activation: Int64
        var rootNode: UInt64
        var rootKey: (device: UInt64, inode: UInt64, birth: Int64)
        var rootStatus: FileStatus
        /// Is 0 if the kernel does not number mounts.
        var mount: UInt64
        var opensByHandle: Bool
        var crossesMounts: Bool
        var usesCallerGroups: Bool
        var isLocal: Bool
        var isMoveTold: Bool
        var isReadOnly: Bool
        var withdrawal: Withdrawal
        /// Whether the daemon has released its own lookup of the granted directory.
        ///
        /// It is released once, by this daemon or a later one.
        var isReleased: Bool
    }

    enum Withdrawal: UInt8 {
        case none
        /// The withdrawal has begun and is not complete.
        case begun
        case done
        /// A person has yet to allow the scope.
        case offered
    }

    private let scopeChunks: SharedChunks
    private let lockChunks: SharedChunks
    private let scopes: SlotTable<ScopeRecord>
    private let locks: SlotTable<LockRecord>
    private let supervisor: Supervisor
    public let claims: ClaimRecords
    private let numbers = Lock<[UInt32: UInt64]>([:])

    public init(_ supervisor: Supervisor, _ tree: NodeTree, _ files: OpenFiles, _ directories: OpenDirectories) throws(Errno) {
        (scopeChunks, lockChunks) = (try SharedChunks(withElements: true), try SharedChunks(withElements: true))
        scopes = SlotTable(shared: scopeChunks)
        locks = SlotTable(shared: lockChunks)
        self.supervisor = supervisor
        claims = try ClaimRecords(supervisor)
        guard let nodes = tree.shared, let files = files.shared, let directories = directories.shared else { throw Errno(ENOMEM) }
        supervisor.page.pointee.nodes = nodes.file.number
        supervisor.page.pointee.files = files.file.number
        supervisor.page.pointee.directories = directories.file.number
        supervisor.page.pointee.scopes = scopeChunks.file.number
        supervisor.page.pointee.locks = lockChunks.file.number
    }

    // MARK: scopes

    /// Adds a scope, before it is shown. Throws ENOMEM if there is no room.
    ///
    /// `isShut`: it is already being withdrawn. `isOffered`: a person has yet to allow it.
    func add(_ scope: Scope, next: UInt32, isShut: Bool = false, isOffered: Bool = false) throws(Errno) {
        guard let root = scope.nodes.rootKey else { throw Errno(EINVAL) }
        let record = ScopeRecord(
            scope: scope.id.rawValue, base: scope.nodes.baseNumber, grant: (scope.grant.high, scope.grant.low),
            activation: scope.activation, rootNode: scope.rootNode, rootKey: (root.device, root.inode, root.birth),
            rootStatus: scope.rootStatus, mount: scope.mount ?? 0, opensByHandle: scope.nodes.opensByHandle,
            crossesMounts: scope.nodes.crossesMounts, usesCallerGroups: scope.nodes.usesCallerGroups, isLocal: scope.isLocal,
            isMoveTold: scope.isMoveTold, isReadOnly: scope.wantsReadOnly.load(ordering: .acquiring),
            withdrawal: scope.isClosed.load(ordering: .acquiring) ? .done : isOffered ? .offered : isShut ? .begun : .none,
            isReleased: scope.closing.withLock { $0.isReleased })
        // The number first: it is never used twice.
        supervisor.page.pointee.next_scope = max(supervisor.page.pointee.next_scope, next)
        guard let id = scopes.insert(record) else { throw Errno(ENOMEM) }
        numbers.withLock { $0[scope.id.rawValue] = id }
    }

    /// Records the progress of a full withdrawal, or that an offered scope was allowed.
    func update(_ withdrawal: Withdrawal, of scope: ScopeID) {
        let id = numbers.withLock { $0[scope.rawValue] }
        if let id { scopes.find(id)?.pointee.withdrawal = withdrawal }
    }

    /// Records whether the scope is read-only and earlier writes have been written back.
    ///
    /// False while any write may still arrive.
    func update(isReadOnly: Bool, of scope: ScopeID) {
        let id = numbers.withLock { $0[scope.rawValue] }
        if let id { scopes.find(id)?.pointee.isReadOnly = isReadOnly }
    }

    /// Records the release of the scope's own lookup. Call it before that release.
    func markReleased(_ scope: ScopeID) {
        let id = numbers.withLock { $0[scope.rawValue] }
        if let id { scopes.find(id)?.pointee.isReleased = true }
    }

    func remove(_ scope: ScopeID) {
        let id = numbers.withLock { $0.removeValue(forKey: scope.rawValue) }
        if let id { scopes.remove(id) }
    }

    // MARK: locks

    package func add(_ record: LockRecord) -> UInt64? { locks.insert(record) }

    package func remove(lock id: UInt64) { locks.remove(id) }
}
