import Glibc
import GrantModel
import GrantSystem

/// The directories that exist in the mount alone, with the names of the grants in them: the root, and those that lead from there to grants of several views.
///
/// Locking: one lock around the table, rank 2; lookups of grants are few, because the kernel keeps what it found.
public final class VirtualDirectories: Sendable {
    /// What stands behind a grant's name.
    public enum Place: Sendable {
        case open(Scope)
        /// Revoked or expired: EACCES, not listed.
        case refused(GrantID)
    }

    /// What a lookup finds.
    enum Found {
        case place(Place)
        /// A directory, which the kernel knows once more.
        case directory(UInt64)
        case nothing
    }

    /// An entry that is listed.
    enum Listed {
        case scope(Scope)
        case directory(UInt64)
    }

    /// Lookups of a refused name, and who came last.
    public struct Refusals: Sendable {
        public var count: UInt64 = 0
        public var uid: UInt32 = 0
        /// The process's, and its name: see `ProcessName.ofProcess`.
        public var pid: Int32 = 0
        public var program: [UInt8] = []
    }

    private struct Directory {
        /// nil: the root.
        var parent: UInt64?
        var name: GrantName?
        var places: [GrantName: Place] = [:]
        var directories: [GrantName: UInt64] = [:]
        /// The position of each place in the listing: counted here, so that it tells nothing of what is granted elsewhere.
        var positions: [GrantName: UInt64] = [:]
        var nextPosition: UInt64 = 3
        /// How often the kernel was told of it and has not forgotten it.
        var lookups: UInt64 = 0
        /// It is listed, and stays, whatever is in it.
        var isFixed = false
        /// A view may be mounted on it: it is found for as long as this mount lives. A name that is not found any more the kernel drops, with what is mounted there
        /// (fs/dcache.c, d_invalidate).
        var isMountpoint = false
        var changed: Int64 = Clock.realtime
        var listed: [(name: GrantName, position: UInt64, entry: Listed)]?

        var isEmpty: Bool { places.isEmpty && directories.isEmpty }
    }

    private struct Table {
        var refusals: [GrantID: Refusals] = [:]
        var directories: [UInt64: Directory] = [1: Directory(isFixed: true)]
        /// Until when (`Clock.monotonic`) the kernel may believe what a grant's name led to before it was taken away.
        var expiries: [GrantID: Int64] = [:]
        /// Counts the changes, and what `open` said last.
        var version: UInt64 = 1
        var open: (version: UInt64, all: [(path: ShownPath, scope: Scope)])?
        /// How many directories were made.
        var made: UInt64 = 0
        /// Directories of which names came or went since the kernel was told.
        var unannounced: Set<UInt64> = []

        mutating func put(_ place: Place?, _ name: GrantName, in id: UInt64) {
            directories[id]?.places[name] = place
            if place == nil {
                directories[id]?.positions[name] = nil
            } else if let next = directories[id]?.nextPosition, directories[id]?.positions[name] == nil {
                directories[id]?.positions[name] = next
                directories[id]?.nextPosition = next + 1
            }
        }
    }

    private let table = Lock(Table())
    /// Set before the first request: see `MountOptions.isPrivate`.
    public nonisolated(unsafe) var isPrivate = false
    /// A directory in which any name leads to a directory, as if it had always been there: who uses it is given one before there is anything in it.
    private let nursery: UInt64?

    /// So many nanoseconds after a name was looked up it is certain that the kernel asks for it again: `ViewFS.nameTimeout`, which the kernel rounds up to
    /// its ticks (fs/fuse/dir.c, fuse_time_to_jiffies), the slowest of which take 10 ms, and the way of the answer.
    private static let expiry: Int64 = 80_000_000
    /// So many directories are made because somebody asks for their names. They go when the kernel forgets them, but a program decides how many it looks up.
    private static let mostAskedFor = 4096

    /// `nursery`: the name of the directory at the root in which each name leads to a directory.
    init(nursery name: GrantName? = nil) {
        var made: UInt64?
        if let name {
            made = table.withLock { table in
                let id = Self.make(name, in: 1, &table)
                if let id { table.directories[id]?.isFixed = true }
                return id
            }
        }
        nursery = made
    }

    // MARK: ids

    // Ids of nodes have their index in the lower half, and the first 16 are never given out (`SlotTable`). So these are of nobody else, and each is used once.
    private static let idsBelow: UInt64 = 1 << 35

    private static func id(_ number: UInt64) -> UInt64 { (number >> 3) << 32 | 8 | (number & 7) }

    private static func number(_ id: UInt64) -> UInt64 { (id >> 32) << 3 | (id & 7) }

    /// The number of a directory's inode. No filesystem's comes near: each has the index of its device in the upper bits, which are few (`InodeNumbering`).
    static func inode(of id: UInt64) -> UInt64 { id == 1 ? 1 : 0x7FFF << 48 | number(id) }

    /// Makes a directory. nil when so many were made that there are no ids left.
    private static func make(_ name: GrantName, in parent: UInt64, _ table: inout Table) -> UInt64? {
        guard table.made < idsBelow, table.directories[parent] != nil else { return nil }
        table.made += 1
        let id = id(table.made)
        table.directories[id] = Directory(parent: parent, name: name)
        table.directories[parent]?.directories[name] = id
        return id
    }

    /// The directory that these names lead to; nil when there is none.
    private static func find(_ names: [GrantName], _ table: Table) -> UInt64? {
        var id: UInt64 = 1
        for name in names {
            guard let next = table.directories[id]?.directories[name] else { return nil }
            id = next
        }
        return id
    }

    /// Names of a directory have come or gone.
    private static func markChanged(_ id: UInt64, _ table: inout Table) {
        table.directories[id]?.changed = Clock.realtime
        table.directories[id]?.listed = nil
        table.version += 1
        table.unannounced.insert(id)
    }

    /// Takes away a directory that is empty and that nobody knows, and those above of which the same is true then. One that somebody knows stays, unlisted.
    private static func prune(_ id: UInt64, _ table: inout Table) {
        var id = id
        while let directory = table.directories[id], directory.isEmpty, directory.lookups == 0, !directory.isFixed,
            !directory.isMountpoint, let parent = directory.parent, let name = directory.name
        {
            table.directories[id] = nil
            table.unannounced.remove(id)
            if table.directories[parent]?.directories[name] == id { table.directories[parent]?.directories[name] = nil }
            id = parent
        }
    }

    // MARK: grants' names

    public func place(_ path: ShownPath) -> Place? {
        table.withLock { table in Self.find(path.directories, table).flatMap { table.directories[$0]?.places[path.name] } }
    }

    /// Puts `place` behind a path; nil takes the name away. Returns what was there.
    @discardableResult
    public func set(_ path: ShownPath, _ place: Place?) -> Place? {
        table.withLock { table in
            var id: UInt64 = 1
            for name in path.directories {
                let wasListed = table.directories[id]?.directories[name].map { !(table.directories[$0]?.isEmpty ?? true) } ?? false
                guard let next = table.directories[id]?.directories[name] ?? (place == nil ? nil : Self.make(name, in: id, &table)) else {
                    return nil
                }
                if !wasListed { Self.markChanged(id, &table) }
                id = next
            }
            let old = table.directories[id]?.places[path.name]
            Self.markChanged(id, &table)
            if case .open(let scope) = old {
                let now = Clock.monotonic
                table.expiries = table.expiries.filter { $0.value > now }
                let expiry = scope.named.load(ordering: .relaxed) + Self.expiry
                if expiry > now { table.expiries[scope.grant] = expiry }
            }
            table.put(place, path.name, in: id)
            if place == nil, table.directories[id]?.isEmpty == true {
                var above = table.directories[id]?.parent
                while let parent = above {
                    Self.markChanged(parent, &table)
                    above = table.directories[parent]?.parent
                }
                Self.prune(id, &table)
            }
            return old
        }
    }

    /// Until when (`Clock.monotonic`) names of these grants may lead where they led before the last change.
    public func cachedUntil(of grants: some Sequence<GrantID>) -> Int64 {
        table.withLock { table in grants.reduce(0) { max($0, table.expiries[$1] ?? 0) } }
    }

    /// Until when (`Clock.monotonic`) the kernel may believe by itself what a scope's name led to, if nothing is said of it from now on.
    func cachedUntil(_ scope: Scope) -> Int64 { scope.named.load(ordering: .relaxed) + Self.expiry }

    /// Path and scope of all that is listed, in the order of their scopes' numbers, which never come twice. Put in order once after each change,
    /// because every listing and every look at the root's attributes asks for it.
    public var open: [(path: ShownPath, scope: Scope)] {
        let (version, known) = table.withLock { table in (table.version, table.open.flatMap { $0.version == table.version ? $0.all : nil })
        }
        if let known { return known }
        let all = table.withLock { table in
            table.directories.keys.flatMap { id -> [(path: ShownPath, scope: Scope)] in
                let names = Self.names(of: id, table)
                return (table.directories[id]?.places ?? [:]).compactMap { name, place in
                    if case .open(let scope) = place { (ShownPath(name, in: names), scope) } else { nil }
                }
            }
        }
        let open = all.sorted { $0.scope.id.rawValue < $1.scope.id.rawValue }
        table.withLock { table in if table.version == version { table.open = (version, open) } }
        return open
    }

    private static func names(of id: UInt64, _ table: Table) -> [GrantName] {
        var (names, current): ([GrantName], UInt64?) = ([], id)
        while let id = current, let directory = table.directories[id], let name = directory.name {
            names.append(name)
            current = directory.parent
        }
        return names.reversed()
    }

    /// Makes a mountpoint at the root for each of these names. Those of names that are gone are not listed any more. Returns whether anything has changed.
    public func setMountpoints(_ names: Set<GrantName>) -> Bool {
        table.withLock { table in
            var isChanged = false
            for name in names {
                guard let id = table.directories[1]?.directories[name] ?? Self.make(name, in: 1, &table) else { continue }
                if table.directories[id]?.isFixed == true { continue }
                table.directories[id]?.isFixed = true
                table.directories[id]?.isMountpoint = true
                isChanged = true
            }
            for (name, id) in table.directories[1]?.directories ?? [:] where !names.contains(name) && table.directories[id]?.isFixed == true
            {
                table.directories[id]?.isFixed = false
                isChanged = true
            }
            if isChanged { Self.markChanged(1, &table) }
            return isChanged
        }
    }

    // MARK: requests

    /// What a name in a directory leads to: the kernel may believe it for a moment. A directory is known once more then, until `forget`.
    func lookup(_ name: GrantName, in id: UInt64) -> Found {
        table.withLock { table in
            guard let directory = table.directories[id] else { return .nothing }
            if let next = directory.directories[name] {
                // Whoever was given one that is empty now has it still, and what is granted next is shown in it; nobody else finds it meanwhile.
                let isThere = id == nursery || table.directories[next].map { !$0.isEmpty || $0.isFixed || $0.isMountpoint } ?? false
                guard isThere else { return .nothing }
                table.directories[next]?.lookups += 1
                return .directory(next)
            }
            if let place = directory.places[name] {
                if case .open(let scope) = place { scope.named.store(Clock.monotonic, ordering: .relaxed) }
                return .place(place)
            }
            guard id == nursery, directory.directories.count < Self.mostAskedFor, let made = Self.make(name, in: id, &table) else {
                return .nothing
            }
            table.directories[made]?.lookups = 1
            return .directory(made)
        }
    }

    /// The kernel has forgotten so many lookups of a directory.
    func forget(_ id: UInt64, _ count: UInt64) {
        if id == 1 { return }
        table.withLock { table in
            guard let lookups = table.directories[id]?.lookups else { return }
            table.directories[id]?.lookups = lookups - min(lookups, count)
            Self.prune(id, &table)
        }
    }

    /// What is known of a directory; nil when there is none of that id.
    func status(of id: UInt64) -> (parent: UInt64, entries: Int, changed: Int64, isMountpoint: Bool)? {
        guard let listed = listing(of: id) else { return nil }
        return table.withLock { table in
            table.directories[id].map {
                (parent: $0.parent ?? id, entries: listed.count, changed: $0.changed, isMountpoint: $0.isMountpoint)
            }
        }
    }

    /// The entries of a directory, each with the position behind it, which stays true whatever comes and goes; nil when there is none of that id.
    func listing(of id: UInt64) -> [(name: GrantName, position: UInt64, entry: Listed)]? {
        table.withLock { table in
            guard let directory = table.directories[id] else { return nil }
            if let listed = directory.listed { return listed }
            var listed = directory.places.compactMap { name, place -> (name: GrantName, position: UInt64, entry: Listed)? in
                guard case .open(let scope) = place, directory.directories[name] == nil else { return nil }
                return (name, directory.positions[name] ?? 3, .scope(scope))
            }
            for (name, id) in directory.directories {
                guard let child = table.directories[id], !child.isEmpty || child.isFixed else { continue }
                listed.append((name, Self.firstDirectory + Self.number(id), .directory(id)))
            }
            listed.sort { $0.position < $1.position }
            table.directories[id]?.listed = listed
            return listed
        }
    }

    /// Positions 1 and 2 are `.` and `..`, and of names so many never come in the life of a mount.
    private static let firstDirectory: UInt64 = 1 << 40

    /// The scopes that are shown in a directory and below.
    func scopes(below id: UInt64) -> [Scope] {
        if id == 1 { return open.map(\.scope) }
        let names = table.withLock { Self.names(of: id, $0) }
        return open.filter { $0.path.directories.starts(with: names) }.map(\.scope)
    }

    /// Whether a scope is shown in a mount that has a nursery, and not in it.
    func isBesideNursery(_ scope: UInt32) -> Bool {
        guard nursery != nil, let path = open.first(where: { $0.scope.id.rawValue == scope })?.path else { return false }
        return table.withLock { table in nursery.flatMap { table.directories[$0]?.name } != path.directories.first }
    }

    /// Changes whenever a name comes or goes; never 0.
    var version: UInt64 { table.withLock { $0.version } }

    /// The directories of which names came or went since the last call.
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

    /// The refused lookups since the last call.
    public func takeRefusals() -> [GrantID: Refusals] {
        table.withLock { table in
            defer { table.refusals = [:] }
            return table.refusals
        }
    }

    // MARK: from one daemon to the next

    /// What a lookup may go by for a moment yet, and when a name at the root last came or went. Of a mount that has no other such directory.
    func handOver(to state: inout HandoverWriter) {
        let (changed, expiries) = table.withLock { ($0.directories[1]?.changed ?? 0, $0.expiries) }
        state.put(changed)
        state.put(UInt64(truncatingIfNeeded: expiries.count))
        for (grant, expiry) in expiries {
            state.put(grant: grant)
            state.put(expiry)
        }
    }

    /// The names come back by `set`, and then the time of the last change is set to this.
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        let changed: Int64 = try state.take()
        var expiries: [GrantID: Int64] = [:]
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) {
            let (grant, expiry): (GrantID, Int64) = (try state.takeGrant(), try state.take())
            expiries[grant] = expiry
        }
        table.withLock {
            $0.directories[1]?.changed = changed
            $0.expiries = expiries
        }
    }

    /// Puts a grant's name back that another daemon has shown at the root: nothing has changed.
    public func takeOver(_ name: GrantName, _ scope: Scope) {
        table.withLock { table in
            table.put(.open(scope), name, in: 1)
            table.directories[1]?.listed = nil
            table.open = nil
        }
    }
}
