import GrantCoordinator
import GrantModel
import Glibc
import GrantSystem
import GrantViewTree

/// The target of a claim, held open so that it is found after a move.
///
/// It is a file, a directory, or the name of a file that does not exist yet.
public final class ClaimTarget: Sendable {
    /// Its path on the host when it was claimed.
    public let path: [UInt8]
    /// The parent directory, O_PATH. For a granted directory itself: that directory, without a
    /// name.
    let directory: FileDescriptor
    let name: [UInt8]?
    /// The file, O_PATH. It is nil if it did not exist.
    let file: Held?
    let crossesMounts: Bool

    final class Held: Sendable {
        let descriptor: FileDescriptor
        init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
    }

    init(path: [UInt8], directory: consuming FileDescriptor, name: [UInt8]?, crossesMounts: Bool) throws(Errno) {
        self.path = path
        self.name = name
        self.crossesMounts = crossesMounts
        if let name {
            do throws(Errno) {
                file = Held(
                    try FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: crossesMounts))
            } catch {
                guard error == Errno(ENOENT) else { throw error }
                file = nil
            }
        } else {
            file = nil
        }
        self.directory = directory
    }

    init(path: [UInt8], directory: consuming FileDescriptor, name: [UInt8]?, file: consuming FileDescriptor?, crossesMounts: Bool) {
        (self.path, self.name, self.crossesMounts) = (path, name, crossesMounts)
        if let file { self.file = Held(file) } else { self.file = nil }
        self.directory = directory
    }

    /// The item in its present state. Reads the files, and may block on their filesystem.
    public func item() -> ClaimedItem {
        let above = ClaimTarget.chain(from: directory.number)
        guard let name else {
            return ClaimedItem(identities: Array(above.prefix(1)), place: nil, ancestors: Array(above.dropFirst()))
        }
        var item = ClaimedItem(
            identities: [], place: above.first.map { ItemPlace(directory: $0, name: name) }, ancestors: above, isNoDirectory: true)
        if let file, let status = try? file.descriptor.status() {
            item.identities.append(ItemID(NodeKey(status)))
            if status.st.st_mode & S_IFMT == S_IFDIR { item.isNoDirectory = false }
            for directory in ClaimTarget.directories(above: file.descriptor, status) where !item.ancestors.contains(directory) {
                item.ancestors.append(directory)
            }
        }
        // Another file may have replaced it.
        if let there = try? FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: crossesMounts),
            let status = try? there.status(), !item.identities.contains(ItemID(NodeKey(status)))
        {
            item.identities.append(ItemID(NodeKey(status)))
            if status.st.st_mode & S_IFMT == S_IFDIR { item.isNoDirectory = false }
        }
        return item
    }

    /// Its current path, or the claimed path if it has none.
    public var currentPath: [UInt8] {
        guard name != nil else { return (try? directory.path()) ?? path }
        guard let file, let status = try? file.descriptor.status(), status.st.st_nlink > 0, let now = try? file.descriptor.path() else {
            return path
        }
        return now
    }

    // MARK: directories above

    /// The directory and all its parents up to the root.
    static func chain(from directory: Int32) -> [ItemID] {
        var seen = SeenDirectories()
        return chain(from: directory, &seen)
    }

    /// The directory and all its parents up to the root, of which those in `seen` are not opened again.
    static func chain(from directory: Int32, _ seen: inout SeenDirectories) -> [ItemID] {
        var (result, places) = ([ItemID](), [SeenDirectories.Place?]())
        guard var current = try? FileDescriptor.openAt(directory, ".".utf8, OpenFlags.path | O_DIRECTORY) else { return result }
        while result.count < deepest, let status = try? current.status() {
            let id = ItemID(NodeKey(status))
            let place = SeenDirectories.Place(id, status)
            // The parent of the root is the root. A directory can also be mounted on its own child.
            if result.last == id, places.last == place { break }
            if let known = place.flatMap({ seen.chains[$0] }) {
                result += known
                break
            }
            result.append(id)
            places.append(place)
            guard let above = try? FileDescriptor.openAt(current.number, "..".utf8, OpenFlags.path | O_DIRECTORY) else { break }
            current = above
        }
        // Others lie beside it more often than in it.
        if places.count > 1, let place = places[1] { seen.chains[place] = Array(result.dropFirst()) }
        return result
    }

    private static let deepest = 4096

    /// The parent directories of an open file. The result is empty if it was removed.
    static func directories(above file: borrowing FileDescriptor, _ status: borrowing FileStatus) -> [ItemID] {
        if status.st.st_mode & S_IFMT == S_IFDIR { return Array(chain(from: file.number).dropFirst()) }
        guard status.st.st_nlink > 0, let path = try? file.path(), let slash = path.lastIndex(of: UInt8(ascii: "/")) else { return [] }
        let below = path[..<slash].drop { $0 == UInt8(ascii: "/") }
        guard let root = try? FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY),
            let directory = try? FileDescriptor.openBeneath(
                root.number, below.isEmpty ? ArraySlice(".".utf8) : below, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
        else { return [] }
        return chain(from: directory.number)
    }
}

/// Parents of directories that were looked at together.
struct SeenDirectories {
    /// A directory in one mount of its filesystem: in another mount it may have other parents.
    struct Place: Hashable {
        let (id, mount): (ItemID, UInt64)

        /// Returns nil if the kernel does not tell the mount.
        init?(_ id: ItemID, _ status: borrowing FileStatus) {
            guard status.has_mount_id else { return nil }
            (self.id, mount) = (id, status.mount_id)
        }
    }

    /// Each directory with all its parents.
    var chains: [Place: [ItemID]] = [:]
}

extension ItemID {
    init(_ key: NodeKey) { self.init(key.device, key.inode, key.birth) }
}

/// Why there is no target.
public enum TargetFailure: Error, Equatable {
    /// No open grant of the mount leads there.
    case outside
    case system(Errno)
}

extension ViewFS {
    /// Returns the target at a path of the host, if an open grant leads there.
    ///
    /// Opens no file outside of the granted directory and follows no link. May block on the
    /// filesystem.
    public func target(_ path: [UInt8]) throws(TargetFailure) -> ClaimTarget {
        if let likely = innermostScope(holding: path, amongKnown: true), let target = try? target(path, likely) { return target }
        guard let holder = innermostScope(holding: path) else { throw .outside }
        return try target(path, holder)
    }

    private func target(_ path: [UInt8], _ holder: (scope: Scope, count: Int)) throws(TargetFailure) -> ClaimTarget {
        let slash = UInt8(ascii: "/")
        let names = path.dropFirst(holder.count).split(separator: slash)
        let crosses = holder.scope.nodes.crossesMounts
        var result: Result<ClaimTarget, Errno> = .failure(Errno(ESTALE))
        tree.withRoot(of: holder.scope.nodes) { descriptor in
            guard descriptor >= 0 else { return }
            do throws(Errno) {
                let above = Array(names.dropLast().joined(separator: [slash]))
                let directory = try FileDescriptor.openBeneath(
                    descriptor, above.isEmpty ? Array(".".utf8) : above, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW,
                    crossMounts: crosses)
                result = .success(
                    try ClaimTarget(path: path, directory: directory, name: names.last.map { Array($0) }, crossesMounts: crosses))
            } catch {
                result = .failure(error)
            }
        }
        switch result {
        case .success(let target): return target
        case .failure(let error):
            // Another filesystem, or a link on the path: not part of the grant.
            if error == Errno(EXDEV) || error == Errno(ELOOP) { throw .outside }
            throw .system(error)
        }
    }

    /// Returns the innermost open grant that leads to a path, which crosses the fewest mounts, and
    /// the length of its own path.
    ///
    /// - Parameter amongKnown: Whether only those are considered that an earlier search found on
    ///   the way to this path.
    private func innermostScope(holding path: [UInt8], amongKnown: Bool = false) -> (scope: Scope, count: Int)? {
        var innermost: (scope: Scope, count: Int)?
        for (_, scope) in names.open {
            if amongKnown, !scope.lastPath.withLock({ !$0.isEmpty && MountTable.path(path, isAtOrBelow: $0) }) { continue }
            let own = self.path(of: scope) ?? []
            if !amongKnown { scope.lastPath.withLock { $0 = own } }
            guard !own.isEmpty, own.count > innermost?.count ?? 0, MountTable.path(path, isAtOrBelow: own) else { continue }
            innermost = (scope, own.count)
        }
        return innermost
    }

    /// For each item, the open scopes that contain it or lie in it.
    public func scopes(meeting items: [ClaimedItem]) -> [[Scope]] {
        let open = names.open.map(\.scope)
        // Only a directory can have a granted directory in it, and to find those takes all parents
        // of each.
        let hasDirectories = !items.allSatisfy { $0.isNoDirectory || $0.identities.isEmpty }
        let roots = hasDirectories ? rootItems(of: open) : []
        return items.map { item in
            if !item.isNoDirectory, !item.identities.isEmpty { return roots.filter { item.overlaps($0.item) }.map(\.scope) }
            let reached = Set(item.identities + item.ancestors)
            let devices = Set(reached.map(\.first))
            return open.filter { scope in
                // Other filesystems, which may hang, are not asked.
                guard let root = scope.nodes.root, devices.contains(root.key.device) else { return false }
                // An overlay changes a directory's birth time with the first change in it.
                var now: NodeKey?
                tree.withRoot(of: scope.nodes) { if $0 >= 0 { now = NodeKey(descriptor: $0) } }
                return now.map { reached.contains(ItemID($0)) } ?? false
            }
        }
    }

    private func rootItems(of scopes: [Scope]) -> [(scope: Scope, item: ClaimedItem)] {
        var seen = SeenDirectories()
        return scopes.compactMap { scope in
            var chain: [ItemID] = []
            tree.withRoot(of: scope.nodes) { if $0 >= 0 { chain = ClaimTarget.chain(from: $0, &seen) } }
            guard let own = chain.first else { return nil }
            return (scope, ClaimedItem(identities: [own], place: nil, ancestors: Array(chain.dropFirst())))
        }
    }
}
