import Glibc
import GrantModel
import GrantSystem

/// The tree of the directories that exist only in the mount.
///
/// `VirtualDirectories` has its lock.
struct VirtualDirectoryTable {
    /// An entry of a listing, with the position behind it.
    typealias ListedEntry = (name: GrantName, position: UInt64, entry: VirtualDirectories.Listed)

    struct Directory {
        /// It is nil for the root.
        var parent: UInt64?
        var name: GrantName?
        var places: [GrantName: VirtualDirectories.Place] = [:]
        var directories: [GrantName: UInt64] = [:]
        /// The position of each place in the listing.
        ///
        /// Counted for each directory, so that it reveals nothing about grants elsewhere.
        var positions: [GrantName: UInt64] = [:]
        var nextPosition: UInt64 = 3
        /// The kernel's lookup count.
        var lookups: UInt64 = 0
        /// Whether it is listed and stays even when empty.
        var isFixed = false
        /// Whether a view may be mounted on it.
        ///
        /// A lookup finds it for as long as this mount lives. The kernel would drop a name that is
        /// no longer found, together with its mount (fs/dcache.c, d_invalidate).
        var isMountpoint = false
        var changed: Int64 = Clock.realtime
        var listed: [ListedEntry]?

        var isEmpty: Bool { places.isEmpty && directories.isEmpty }
        /// Whether a lookup of its name finds it, and no place of the same name.
        var isFound: Bool { !isEmpty || isFixed || isMountpoint }
    }

    var refusals: [GrantID: VirtualDirectories.Refusals] = [:]
    var directories: [UInt64: Directory] = [root: Directory(isFixed: true)]
    /// Until when (`Clock.monotonic`) the kernel may use the removed name of a grant.
    var expiries: [GrantID: Int64] = [:]
    /// Counts the changes. Never 0.
    private(set) var version: UInt64 = 1
    /// The last result of `VirtualDirectories.open`, and the version of the table that it shows.
    var open: (version: UInt64, all: [(path: ShownPath, scope: Scope)])?
    /// The number of directories ever made.
    private var made: UInt64 = 0
    /// Directories whose names have changed since the kernel was last notified.
    var unannounced: Set<UInt64> = []

    // MARK: ids

    /// The id of the root.
    static let root: UInt64 = 1
    // Node ids have their index in the lower half, and `SlotTable` never hands out the first 16. So
    // these ids are unique, and each is used once.
    private static let idsBelow: UInt64 = 1 << 35
    /// Listing positions of directories begin here.
    ///
    /// Grants' positions, counted from 3, never get so far in the life of a mount.
    private static let firstDirectory: UInt64 = 1 << 40

    private static func id(_ number: UInt64) -> UInt64 { (number >> 3) << 32 | 8 | (number & 7) }

    private static func number(_ id: UInt64) -> UInt64 { (id >> 32) << 3 | (id & 7) }

    /// The inode number of a directory.
    ///
    /// It differs from all numbers of files: those have the index of the device in the upper bits,
    /// which is small (`InodeNumbering`).
    static func inode(of id: UInt64) -> UInt64 { id == root ? 1 : mark << 48 | number(id) }

    static func isVirtual(inode: UInt64) -> Bool { inode >> 48 == mark }

    private static let mark: UInt64 = 0x7FFF

    // MARK: reading

    /// The directory that these names lead to. Returns nil if there is none.
    func find(_ names: [GrantName]) -> UInt64? {
        var id = Self.root
        for name in names {
            guard let next = directories[id]?.directories[name] else { return nil }
            id = next
        }
        return id
    }

    /// The names that lead from the root to a directory.
    func names(of id: UInt64) -> [GrantName] {
        var (names, current): ([GrantName], UInt64?) = ([], id)
        while let id = current, let directory = directories[id], let name = directory.name {
            names.append(name)
            current = directory.parent
        }
        return names.reversed()
    }

    /// Path and scope of every grant that is shown.
    var openPlaces: [(path: ShownPath, scope: Scope)] {
        directories.keys.flatMap { id -> [(path: ShownPath, scope: Scope)] in
            let names = names(of: id)
            return (directories[id]?.places ?? [:]).compactMap { name, place in
                if case .open(let scope) = place { (ShownPath(name, in: names), scope) } else { nil }
            }
        }
    }

    /// The entries of a directory by position, cached until the next change.
    ///
    /// Returns nil if there is no such directory.
    mutating func listing(of id: UInt64) -> [ListedEntry]? {
        guard let directory = directories[id] else { return nil }
        if let listed = directory.listed { return listed }
        var listed = directory.places.compactMap { name, place -> ListedEntry? in
            guard case .open(let scope) = place, directory.directories[name].map({ directories[$0]?.isFound == true }) != true else {
                return nil
            }
            return (name, directory.positions[name] ?? 3, .scope(scope))
        }
        for (name, id) in directory.directories {
            guard let child = directories[id], !child.isEmpty || child.isFixed else { continue }
            listed.append((name, Self.firstDirectory + Self.number(id), .directory(id)))
        }
        listed.sort { $0.position < $1.position }
        directories[id]?.listed = listed
        return listed
    }

    // MARK: changing

    /// Makes a directory. Returns nil if no id is left or there is no such parent.
    mutating func make(_ name: GrantName, in parent: UInt64) -> UInt64? {
        guard made < Self.idsBelow, directories[parent] != nil else { return nil }
        made += 1
        let id = Self.id(made)
        directories[id] = Directory(parent: parent, name: name)
        directories[parent]?.directories[name] = id
        return id
    }

    /// Sets the place of a name, and gives it a position. nil removes both.
    ///
    /// The directory is not marked as changed.
    mutating func put(_ place: VirtualDirectories.Place?, _ name: GrantName, in id: UInt64) {
        directories[id]?.places[name] = place
        if place == nil {
            directories[id]?.positions[name] = nil
        } else if let next = directories[id]?.nextPosition, directories[id]?.positions[name] == nil {
            directories[id]?.positions[name] = next
            directories[id]?.nextPosition = next + 1
        }
    }

    /// Sets the place of a path, and returns the place before. nil removes the name.
    ///
    /// Makes the directories of the path, or removes empty ones.
    mutating func set(_ path: ShownPath, _ place: VirtualDirectories.Place?) -> VirtualDirectories.Place? {
        var id = Self.root
        for name in path.directories {
            let wasListed = directories[id]?.directories[name].map { !(directories[$0]?.isEmpty ?? true) } ?? false
            guard let next = directories[id]?.directories[name] ?? (place == nil ? nil : make(name, in: id)) else { return nil }
            if !wasListed { markChanged(id) }
            id = next
        }
        let old = directories[id]?.places[path.name]
        markChanged(id)
        if case .open(let scope) = old { keepExpiry(of: scope) }
        put(place, path.name, in: id)
        if place == nil, directories[id]?.isEmpty == true {
            var above = directories[id]?.parent
            while let parent = above {
                markChanged(parent)
                above = directories[parent]?.parent
            }
            prune(id)
        }
        return old
    }

    /// Records until when the kernel may use a name that is removed.
    private mutating func keepExpiry(of scope: Scope) {
        let now = Clock.monotonic
        expiries = expiries.filter { $0.value > now }
        let expiry = scope.named.load(ordering: .relaxed) + VirtualDirectories.expiry
        if expiry > now { expiries[scope.grant] = expiry }
    }

    /// See `VirtualDirectories.setMountpoints(_:)`.
    mutating func setMountpoints(_ names: Set<GrantName>) -> Bool {
        var isChanged = false
        for name in names {
            guard let id = directories[Self.root]?.directories[name] ?? make(name, in: Self.root) else { continue }
            if directories[id]?.isFixed == true { continue }
            directories[id]?.isFixed = true
            directories[id]?.isMountpoint = true
            isChanged = true
        }
        for (name, id) in directories[Self.root]?.directories ?? [:] where !names.contains(name) && directories[id]?.isFixed == true {
            directories[id]?.isFixed = false
            isChanged = true
        }
        if isChanged { markChanged(Self.root) }
        return isChanged
    }

    /// Records that names of a directory have changed.
    mutating func markChanged(_ id: UInt64) {
        directories[id]?.changed = Clock.realtime
        directories[id]?.listed = nil
        version += 1
        unannounced.insert(id)
    }

    /// Removes a directory that is empty and unknown to the kernel.
    ///
    /// Removes its parents too, if they have become so. A directory that the kernel knows stays,
    /// unlisted.
    mutating func prune(_ id: UInt64) {
        var id = id
        while let directory = directories[id], directory.isEmpty, directory.lookups == 0, !directory.isFixed, !directory.isMountpoint,
            let parent = directory.parent, let name = directory.name
        {
            directories[id] = nil
            unannounced.remove(id)
            if directories[parent]?.directories[name] == id { directories[parent]?.directories[name] = nil }
            id = parent
        }
    }
}
