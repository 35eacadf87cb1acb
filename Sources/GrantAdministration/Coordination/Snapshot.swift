import Glibc
import GrantModel
import GrantSystem

/// Copies of claimed items that outlive the claim: what to upload, or to back up at leisure while the writers go on. On filesystems that can, the data is shared
/// (reflinks), and a snapshot takes as long as making the names.
public enum Snapshot {
    public struct Made: Sendable, Equatable {
        /// The copies, in the order of the items.
        public var paths: [[UInt8]]
        /// How many files of any kind were made, directories included, and how many bytes they have.
        public var files: UInt64
        public var bytes: UInt64
        /// What the directory is: `remove` takes nothing else away.
        public var key: FileKey
    }

    /// What the names of snapshots begin with that are under way: hidden, beside what they are to become.
    static let prefix = Array(".grantfs-snapshot-".utf8)

    /// Copies items, each under its own name, into a directory that is made for them, of this user alone (0700). It is there when everything is in it, and
    /// never with less: a failure removes all of it, and what a process that was killed has left behind goes with the next snapshot in the same place.
    ///
    /// - Parameters:
    ///   - items: absolute paths of the host without links. Who claims them sees to it that nobody changes them meanwhile.
    ///   - directory: an absolute path at which nothing stands; not inside an item. It has to lie where nobody but this user and root can put something else in its
    ///     place (`OwnDirectory`).
    ///   - progress: called on this thread, ten times a second at most; `done` are bytes.
    ///   - check: called on this thread all the while; what it throws ends the work.
    ///
    /// `.alreadyExists` when something stands at `directory`, `.usage` when two items have one name or it would lie in one of them, `.permission` when others
    /// could put something else in its place, `.notFound`, `.permission`, `.system` for anything else.
    public static func make(
        of items: [[UInt8]], in directory: [UInt8], progress: ((CoordinationProgress) -> Void)? = nil,
        check: @escaping () throws(GrantError) -> Void = {}
    ) throws(GrantError) -> Made {
        let names = items.map { CanonicalPath.lastName(of: $0) }
        let name = CanonicalPath.lastName(of: directory)
        guard !name.isEmpty, !names.contains([]) else { throw GrantError(.usage, "the root directory is no snapshot and has none") }
        if Set(names).count != names.count {
            throw GrantError(.usage, "two of the items have the same name", advice: "make a snapshot of each")
        }
        let place = try Place.open(parent: CanonicalPath.parent(of: directory), name: name)
        try place.expectNothing()
        for item in items where MountTable.path(place.path, isAtOrBelow: item) {
            throw GrantError(.usage, "\(place.shown) lies in what is to be copied", advice: "choose another place for the snapshot")
        }
        let staging = try Staging.begin(in: place)
        do throws(GrantError) {
            let copy = TreeCopy(ownName: staging.name, progress: SnapshotProgress(progress), check: check)
            for item in items {
                let above = try Snapshot.directory(above: item)
                try copy.copy(CanonicalPath.lastName(of: item), in: above, into: staging.directory)
            }
            copy.progress.say()
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

    /// Removes a snapshot that was made at `directory`, with all that is in it. ESTALE when something else stands there, which stays.
    public static func remove(_ directory: [UInt8], _ key: FileKey) throws(Errno) {
        let parent = try FileDescriptor.open(CanonicalPath.parent(of: directory), OpenFlags.path | O_DIRECTORY)
        let name = CanonicalPath.lastName(of: directory)
        let made = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        guard FileKey(try made.status()) == key else { throw Errno(ESTALE) }
        try TreeRemoval.remove(made, named: name, in: parent)
    }

    /// What kind of failure an item that cannot be copied is.
    static func code(_ error: Errno) -> GrantError.Code {
        switch error.rawValue {
        case ENOENT, ENOTDIR: .notFound
        case EACCES, EPERM: .permission
        default: .system
        }
    }

    /// The directory that an item lies in, with no link on the way.
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
    /// Copies what is claimed into a new directory, as `Snapshot.make` does, and gives the claim back, whatever comes of it. The copy fails when the claim is
    /// lost meanwhile.
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
