import Glibc
import GrantModel
import GrantSystem

/// Copies of claimed items that outlive the claim, to be uploaded or backed up while writers go on. On filesystems with reflinks the
/// data is shared, and a snapshot takes only as long as making the names.
public enum Snapshot {
    public struct Made: Sendable, Equatable {
        /// The copies, in the order of the items.
        public var paths: [[UInt8]]
        /// The number of files made, directories included, and their bytes.
        public var files: UInt64
        public var bytes: UInt64
        /// The identity of the directory: `remove` removes nothing else.
        public var key: FileKey
    }

    /// The prefix of hidden names of snapshots in progress, which lie beside their destination.
    static let prefix = Array(".grantfs-snapshot-".utf8)

    /// Copies items, each under its own name, into a new directory that is accessible to this user alone (0700). The directory appears
    /// when it is complete: a failure removes all of it, and what a killed process has left behind is removed with the next snapshot
    /// there.
    ///
    /// - Parameters:
    ///   - items: Absolute paths of the host without links. The caller's claim keeps others from
    ///     changing them.
    ///   - directory: An absolute path where nothing exists, not inside an item. Only this user and
    ///     root may be able to replace anything there (`OwnDirectory`).
    ///   - progress: Called on this thread, at most ten times a second. `done` is in bytes.
    ///   - check: Called on this thread repeatedly. It may throw to stop.
    ///
    /// - Throws: `.alreadyExists` if `directory` exists, `.usage` if two items have the same name
    ///   or one would contain it, `.permission` if others could replace it. Other errors are
    ///   `.notFound`, `.permission` and `.system`.
    public static func make(
        of items: [[UInt8]], in directory: [UInt8], progress: ((CoordinationProgress) -> Void)? = nil,
        check: @escaping () throws(GrantError) -> Void = {}
    ) throws(GrantError) -> Made {
        let names = items.map { CanonicalPath.lastName(of: $0) }
        let name = CanonicalPath.lastName(of: directory)
        guard !name.isEmpty, !names.contains([]) else {
            throw GrantError(.usage, "the root directory cannot be a snapshot or have one")
        }
        if Set(names).count != names.count {
            throw GrantError(.usage, "two of the items have the same name", advice: "make a snapshot of each")
        }
        let place = try Place.open(parent: CanonicalPath.parent(of: directory), name: name)
        try place.expectNothing()
        for item in items where MountTable.path(place.path, isAtOrBelow: item) {
            throw GrantError(
                .usage, "\(place.shown) lies inside a directory of the copy", advice: "choose another place for the snapshot")
        }
        let staging = try Staging.begin(in: place)
        do throws(GrantError) {
            let copy = TreeCopy(ownName: staging.name, progress: SnapshotProgress(progress), check: check)
            for item in items {
                let above = try Snapshot.directory(above: item)
                try copy.copy(CanonicalPath.lastName(of: item), in: above, into: staging.directory)
            }
            copy.progress.report()
            try check()
            try staging.publish(in: place)
            let path = CanonicalPath.join(place.path, name)
            return Made(
                paths: names.map { CanonicalPath.join(path, $0) }, files: copy.progress.files, bytes: copy.progress.bytes, key: staging.key)
        } catch {
            staging.remove(from: place)
            throw error
        }
    }

    /// Removes a snapshot made at `directory`. If another object has its place, that object is kept
    /// and ESTALE is thrown.
    public static func remove(_ directory: [UInt8], _ key: FileKey) throws(Errno) {
        let parent = try FileDescriptor.open(CanonicalPath.parent(of: directory), OpenFlags.path | O_DIRECTORY)
        let name = CanonicalPath.lastName(of: directory)
        let made = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        guard FileKey(try made.status()) == key else { throw Errno(ESTALE) }
        try TreeRemoval.remove(made, named: name, in: parent)
    }

    /// Returns the kind of failure for an item that cannot be copied.
    static func code(_ error: Errno) -> GrantError.Code {
        switch error.rawValue {
        case ENOENT, ENOTDIR: .notFound
        case EACCES, EPERM: .permission
        default: .system
        }
    }

    /// Opens the parent directory of an item, without following links.
    private static func directory(above item: [UInt8]) throws(GrantError) -> FileDescriptor {
        do throws(Errno) {
            let root = try FileDescriptor.open("/".utf8, OpenFlags.path | O_DIRECTORY)
            let way = CanonicalPath.parent(of: item).drop { $0 == UInt8(ascii: "/") }
            return try FileDescriptor.openBeneath(
                root.number, way.isEmpty ? Array(".".utf8) : Array(way), OpenFlags.path | O_DIRECTORY, crossMounts: true)
        } catch {
            throw GrantError(code(error), "“\(String(decoding: item, as: UTF8.self))” cannot be copied", cause: error.description)
        }
    }
}

extension Claim {
    /// Copies the claimed items into a new directory, as `Snapshot.make` does, and then releases the claim in any case. The copy fails
    /// if the claim is lost meanwhile.
    public func snapshot(
        in directory: [UInt8], progress: ((CoordinationProgress) -> Void)? = nil, check: @escaping () throws(GrantError) -> Void = {}
    ) throws(GrantError) -> Snapshot.Made {
        defer { end() }
        return try Snapshot.make(of: paths, in: directory, progress: progress) { () throws(GrantError) in
            if let error = self.lost() { throw error.grantError }
            try check()
        }
    }
}
