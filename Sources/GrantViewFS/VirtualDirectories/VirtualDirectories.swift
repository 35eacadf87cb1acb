import Glibc
import GrantModel
import GrantSystem

private let root = VirtualDirectoryTable.root

/// The directories that exist only in the mount, with the grants' names in them.
///
/// These are the root, and the directories that lead from it to the grants of several views.
///
/// Locking: one lock around the table, rank 2. Lookups of grants are few, because the kernel caches
/// them.
public final class VirtualDirectories: Sendable {
    /// The target of a grant's name.
    public enum Place: Sendable {
        case open(Scope)
        /// Revoked or expired: EACCES, not listed.
        case refused(GrantID)
    }

    /// The result of a lookup.
    enum Found {
        case place(Place)
        /// The id of a directory, whose lookup count has gone up by one.
        case directory(UInt64)
        /// The directory of the lookup is a mountpoint without a mount.
        case refused
        case nothing
    }

    /// An entry that is listed.
    enum Listed {
        case scope(Scope)
        case directory(UInt64)
    }

    /// The number of lookups of a refused name, and the last caller.
    public struct Refusals: Sendable {
        public var count: UInt64 = 0
        public var uid: UInt32 = 0
        /// The process and its name: see `ProcessName.ofProcess`.
        public var pid: Int32 = 0
        public var program: [UInt8] = []
    }

    private let table = Lock(VirtualDirectoryTable())
    /// Set before the first request: see `MountOptions.isPrivate`.
    public nonisolated(unsafe) var isPrivate = false
    /// A directory in which any name leads to a directory, as if it existed.
    ///
    /// Users get such a directory before any grant is shown in it.
    private let nursery: UInt64?

    /// How long the kernel may cache a name after its lookup, at most, in nanoseconds.
    ///
    /// This is `ViewFS.nameTimeout`, which the kernel rounds up to its ticks of up to 10 ms
    /// (fs/fuse/dir.c, fuse_time_to_jiffies), plus the time that the reply takes.
    public static let expiry: Int64 = 80_000_000
    /// The limit of directories in the nursery.
    ///
    /// They are removed when the kernel forgets them, but a program decides how many it looks up.
    private static let maxInNursery = 4096

    /// `nursery`: the name of the directory at the root in which each name leads to a directory. `fixed`: the name of one that exists
    /// before any grant is shown in it.
    init(nursery name: GrantName? = nil, fixed: GrantName? = nil) {
        if let fixed {
            table.withLock { table in
                if let id = table.make(fixed, in: root) { table.directories[id]?.isFixed = true }
            }
        }
        var made: UInt64?
        if let name {
            made = table.withLock { table in
                let id = table.make(name, in: root)
                if let id { table.directories[id]?.isFixed = true }
                return id
            }
        }
        nursery = made
    }

    /// See `VirtualDirectoryTable.inode`.
    static func inode(of id: UInt64) -> UInt64 { VirtualDirectoryTable.inode(of: id) }

    /// Whether a directory below the root with this inode number exists only in the mount.
    public static func isVirtual(inode: UInt64) -> Bool { VirtualDirectoryTable.isVirtual(inode: inode) }

    // MARK: grants' names

    public func place(_ path: ShownPath) -> Place? {
        table.withLock { table in table.find(path.directories).flatMap { table.directories[$0]?.places[path.name] } }
    }

    /// Sets the place of a path. nil removes the name. Returns the place before.
    @discardableResult
    public func set(_ path: ShownPath, _ place: Place?) -> Place? { table.withLock { $0.set(path, place) } }

    /// Until when (`Clock.monotonic`) the kernel may use earlier names of these grants.
    ///
    /// These are the names before their last change.
    public func cachedUntil(of grants: some Sequence<GrantID>) -> Int64 {
        table.withLock { table in grants.reduce(0) { max($0, table.expiries[$1] ?? 0) } }
    }

    /// Until when (`Clock.monotonic`) the kernel may use its cached name of a scope.
    ///
    /// A further lookup extends that time.
    func cachedUntil(_ scope: Scope) -> Int64 { scope.named.load(ordering: .relaxed) + Self.expiry }

    /// Path and scope of every grant that is shown, ordered by the scope's id.
    ///
    /// An id is never used twice. Sorted once after each change, because every listing and every
    /// request for the root's attributes needs it.
    public var open: [(path: ShownPath, scope: Scope)] {
        let (version, known) = table.withLock { table in (table.version, table.open.flatMap { $0.version == table.version ? $0.all : nil })
        }
        if let known { return known }
        let all = table.withLock(\.openPlaces)
        let open = all.sorted { $0.scope.id.rawValue < $1.scope.id.rawValue }
        table.withLock { table in if table.version == version { table.open = (version, open) } }
        return open
    }

    /// Makes a mountpoint at the root for each of these names. Returns whether anything changed.
    ///
    /// Mountpoints with other names are no longer listed, but a lookup finds them for as long as
    /// the mount lives.
    public func setMountpoints(_ names: Set<GrantName>) -> Bool { table.withLock { $0.setMountpoints(names) } }

    // MARK: requests

    /// Looks up a name in a directory. The kernel may cache the result for a moment.
    ///
    /// Counts a lookup of a directory, until `forget`.
    func lookup(_ name: GrantName, in id: UInt64) -> Found {
        table.withLock { table in
            guard let directory = table.directories[id] else { return .nothing }
            if let next = directory.directories[name] {
                // An empty directory is not found. Programs that have it open keep it, and see
                // later grants in it.
                if id == nursery || table.directories[next]?.isFound == true {
                    table.directories[next]?.lookups += 1
                    return .directory(next)
                }
            }
            if let place = directory.places[name] {
                if case .open(let scope) = place { scope.named.store(Clock.monotonic, ordering: .relaxed) }
                return .place(place)
            }
            guard id == nursery, directory.directories.count < Self.maxInNursery, let made = table.make(name, in: id) else {
                return .nothing
            }
            table.directories[made]?.lookups = 1
            return .directory(made)
        }
    }

    /// Subtracts `count` from the lookup count of a directory.
    func forget(_ id: UInt64, _ count: UInt64) {
        if id == root { return }
        table.withLock { table in
            guard let lookups = table.directories[id]?.lookups else { return }
            table.directories[id]?.lookups = lookups - min(lookups, count)
            table.prune(id)
        }
    }

    /// Returns the source of a directory's attributes, or nil if there is no such directory.
    func status(of id: UInt64) -> (parent: UInt64, entries: Int, changed: Int64, isMountpoint: Bool)? {
        guard let listed = listing(of: id) else { return nil }
        return table.withLock { table in
            table.directories[id].map {
                (parent: $0.parent ?? id, entries: listed.count, changed: $0.changed, isMountpoint: $0.isMountpoint)
            }
        }
    }

    /// Returns the entries of a directory, each with the position behind it.
    ///
    /// Positions stay valid when other names are added or removed. Returns nil if there is no such
    /// directory.
    func listing(of id: UInt64) -> [(name: GrantName, position: UInt64, entry: Listed)]? {
        table.withLock { $0.listing(of: id) }
    }

    /// Returns the scopes that are shown in a directory and below.
    func scopes(below id: UInt64) -> [Scope] {
        if id == root { return open.map(\.scope) }
        let names = table.withLock { $0.names(of: id) }
        return open.filter { $0.path.directories.starts(with: names) }.map(\.scope)
    }

    /// Whether the mount shows the documents of the desktop.
    var showsDocuments: Bool { nursery != nil }

    /// Changes when a name is added or removed. Never 0.
    var version: UInt64 { table.withLock { $0.version } }

    /// Returns the directories whose names have changed since the last call.
    func takeUnannounced() -> Set<UInt64> {
        table.withLock { table in
            defer { table.unannounced = [] }
            return table.unannounced
        }
    }

    // MARK: refusals

    /// Counts a refused lookup.
    func countRefusal(of grant: GrantID, uid: UInt32, thread: Int32) {
        let (pid, program) = ProcessName.ofProcess(withThread: thread)
        table.withLock { table in
            let count = table.refusals[grant]?.count ?? 0
            table.refusals[grant] = Refusals(count: count &+ 1, uid: uid, pid: pid, program: program)
        }
    }

    /// Returns the refused lookups since the last call.
    public func takeRefusals() -> [GrantID: Refusals] {
        table.withLock { table in
            defer { table.refusals = [:] }
            return table.refusals
        }
    }

    // MARK: from one daemon to the next

    /// Writes when the root last changed, and until when the kernel may use removed names.
    ///
    /// Only for a mount of one view.
    func handOver(to state: inout HandoverWriter) {
        let (changed, expiries) = table.withLock { ($0.directories[root]?.changed ?? 0, $0.expiries) }
        state.put(changed)
        state.put(UInt64(truncatingIfNeeded: expiries.count))
        for (grant, expiry) in expiries {
            state.put(grant: grant)
            state.put(expiry)
        }
    }

    /// Reads the state that `handOver` wrote.
    ///
    /// The names follow by `takeOver(_:_:)`, which does not change the time.
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        let changed: Int64 = try state.take()
        var expiries: [GrantID: Int64] = [:]
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) {
            let (grant, expiry): (GrantID, Int64) = (try state.takeGrant(), try state.take())
            expiries[grant] = expiry
        }
        table.withLock {
            $0.directories[root]?.changed = changed
            $0.expiries = expiries
        }
    }

    /// Restores the name of a grant that the previous daemon showed at the root.
    ///
    /// This does not count as a change.
    public func takeOver(_ name: GrantName, _ scope: Scope) {
        table.withLock { table in
            table.put(.open(scope), name, in: root)
            table.directories[root]?.listed = nil
            table.open = nil
        }
    }
}
