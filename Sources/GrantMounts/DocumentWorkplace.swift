import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The directory in which a program makes temporary files beside a document. It lies on the host beside the document, so that a file
/// written there can replace the document in one step. It belongs to one mount, is accessible to the document's owner alone, and ends
/// with the mount. What programs saved in it is kept (`KeptWorkplace`).
///
/// A record in the store's `run` directory has its path, and is locked by the daemon that uses it. The next daemon ends what a killed
/// one has left behind (docs/decisions/documents.md).
public final class DocumentWorkplace: Sendable {
    /// O_PATH.
    public let directory: FileDescriptor
    private let parent: FileDescriptor
    private let name: [UInt8]
    /// The document's name when this was made.
    private let document: [UInt8]
    private let record: String
    private let lock: FileLock
    /// Locked (flock(2)): daemons with another store see by it that the directory is in use.
    private let hold: FileDescriptor

    private init(
        _ directory: consuming FileDescriptor, named name: [UInt8], in parent: consuming FileDescriptor, of document: [UInt8],
        record: String, lock: consuming FileLock
    ) throws(Errno) {
        hold = try AbandonedWorkplaces.hold(directory, named: name, in: parent)
        self.directory = directory
        self.parent = parent
        self.lock = lock
        (self.name, self.document, self.record) = (name, document, record)
    }

    /// The prefix of its name on the host, before 16 hexadecimal digits. The record's name has the same digits.
    static let prefix = ".grantfs-"
    private static let recordPrefix = "document-"

    /// Makes a workplace in the host directory of the document `name`, with the path `path`, for
    /// the document's owner. If nothing can be made there, it is an empty directory in the store's
    /// directory in which no user can make anything.
    public static func make(
        in parent: borrowing FileDescriptor, at path: [UInt8], of document: [UInt8], for owner: FileStatus, store: GrantStore
    ) throws(Errno) -> DocumentWorkplace {
        let digits = Hexadecimal.text(GrantID.random().high)
        let record = store.runDirectory + "/" + recordPrefix + digits
        let lock = try FileLock.make(record)
        do throws(Errno) {
            return try make(
                Array((prefix + digits).utf8), in: try parent.reopened(OpenFlags.path | O_DIRECTORY), at: path, document, owner, record,
                lock)
        } catch {
            guard [EACCES, EPERM, EROFS, ENOSPC, EDQUOT, ENAMETOOLONG, EMLINK].contains(error.rawValue) else {
                unlink(record + ".place")
                unlink(record)
                throw error
            }
            return try makeClosed(record, try FileLock.take(record, create: true))
        }
    }

    private static func make(
        _ name: [UInt8], in parent: consuming FileDescriptor, at path: [UInt8], _ document: [UInt8], _ owner: FileStatus,
        _ record: String, _ lock: consuming FileLock
    ) throws(Errno) -> DocumentWorkplace {
        // The record comes first. An empty directory of that name may be removed, even if another
        // process made it.
        try write(Place(parent: path, name: name, identity: nil, document: []), record)
        // It gets its owner where no other user can exchange it.
        let staging = try OwnStaging(in: parent, prefix: Array(prefix.utf8), digits: 16)
        defer { staging.remove() }
        let inside = staging.directory.number
        try DirectoryEntry.makeDirectory(inside, name, 0o700)
        do throws(Errno) {
            let directory = try FileDescriptor.openBeneath(inside, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            try write(Place(parent: path, name: name, identity: identity(try directory.status()), document: document), record)
            // A default ACL of the directory around it is not meant for temporary files.
            for list in ["system.posix_acl_default", "system.posix_acl_access"] { try? directory.removeAttribute(list) }
            if geteuid() == 0 { try directory.setOwner(owner.st.st_uid, owner.st.st_gid) }
            try directory.setMode(0o700)
            try DirectoryEntry.move(inside, name, to: parent.number, name)
            return try DocumentWorkplace(
                directory.reopened(OpenFlags.path | O_DIRECTORY), named: name, in: parent.reopened(OpenFlags.path | O_DIRECTORY),
                of: document, record: record, lock: lock)
        } catch {
            try? DirectoryEntry.remove(inside, name, isDirectory: true)
            throw error
        }
    }

    private static func makeClosed(_ record: String, _ lock: consuming FileLock) throws(Errno) -> DocumentWorkplace {
        let slash = record.lastIndex(of: "/") ?? record.startIndex
        let (above, name) = (Array(record[..<slash].utf8), Array((record[record.index(after: slash)...] + ".empty").utf8))
        let parent = try FileDescriptor.open(above, OpenFlags.path | O_DIRECTORY)
        try DirectoryEntry.makeDirectory(parent.number, name, 0o700)
        let directory = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try write(Place(parent: above, name: name, identity: identity(try directory.status()), document: []), record)
        try directory.setMode(0o555)
        return try DocumentWorkplace(directory, named: name, in: parent, of: [], record: record, lock: lock)
    }

    /// Removes the directory, or keeps what programs saved in it. Returns the path of the kept
    /// directory, or nil if nothing was saved.
    public func end() -> [UInt8]? {
        var kept: [UInt8]?
        do throws(Errno) {
            kept = try KeptWorkplace.end(directory, named: name, in: parent, document: document)
        } catch {
            // While the record exists, others try again, even if the directory was renamed.
            guard error == Errno(ENOENT) else { return nil }
        }
        unlink(record + ".place")
        unlink(record)
        return kept.flatMap { name in (try? parent.path()).map { CanonicalPath.join($0, name) } }
    }

    /// Ends workplaces beside this one that are in use by no daemon and have no record in this store: their stores are gone. Best effort.
    /// Returns where files are kept.
    public func endAbandoned(_ store: GrantStore) -> [[UInt8]] {
        guard let path = try? parent.path() else { return [] }
        let kept = AbandonedWorkplaces.end(in: parent, owner: try? directory.status().st.st_uid) { digits in
            access(store.runDirectory + "/" + Self.recordPrefix + digits, F_OK) == 0
        }
        return kept.map { CanonicalPath.join(path, $0) }
    }

    /// Ends the workplaces that killed daemons have left behind, best effort. It may wait for their filesystems. Returns where files
    /// are kept.
    public static func sweep(_ store: GrantStore) -> [[UInt8]] {
        var kept: [[UInt8]] = []
        for name in (try? DirectoryNames.of(store.runDirectory.utf8)) ?? [] {
            let text = String(decoding: name, as: UTF8.self)
            guard text.hasPrefix(recordPrefix), !text.contains("."), text.utf8.count == recordPrefix.utf8.count + 16 else { continue }
            let record = store.runDirectory + "/" + text
            guard let lock = try? FileLock.take(record) else { continue }
            if endLeft(record, &kept) {
                unlink(record + ".place")
                unlink(record)
            }
            _ = consume lock
        }
        return kept
    }

    /// Returns whether nothing is left to be ended.
    private static func endLeft(_ record: String, _ kept: inout [[UInt8]]) -> Bool {
        guard let place = read(record) else { return true }
        guard let root = try? FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY) else { return false }
        let below = place.parent.count == 1 ? [0x2E] : Array(place.parent.dropFirst())
        do throws(Errno) {
            let parent = try FileDescriptor.openBeneath(root.number, below, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
            let directory = try FileDescriptor.openBeneath(parent.number, place.name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            // Another directory of that name belongs to another owner. If its identity was never
            // recorded, only an empty one is removed.
            if let known = place.identity, try identity(directory.status()) != known { return true }
            if place.identity == nil {
                try DirectoryEntry.remove(parent.number, place.name, isDirectory: true)
            } else if let name = try KeptWorkplace.end(directory, named: place.name, in: parent, document: place.document) {
                kept.append(CanonicalPath.join(place.parent, name))
            }
            return true
        } catch {
            return [ENOENT, ENOTDIR, ELOOP, ESTALE, ENOTEMPTY].contains(error.rawValue)
        }
    }

    // MARK: the record

    private struct Place {
        let parent: [UInt8]
        let name: [UInt8]
        let identity: [UInt8]?
        /// The document's name, or empty in a record of an earlier version.
        let document: [UInt8]
    }

    private static func identity(_ status: FileStatus) -> [UInt8] {
        Array("\(status.st.st_ino) \(status.has_birth ? "\(status.birth_seconds).\(status.birth_nanoseconds)" : "-")".utf8)
    }

    /// Writes a record: parent, name, identity and document, each terminated by NUL. A record
    /// without an identity has only the first two.
    private static func write(_ place: Place, _ record: String) throws(Errno) {
        let bytes = place.parent + [0] + place.name + [0] + (place.identity.map { $0 + [0] + place.document + [0] } ?? [])
        let file = try FileDescriptor.open((record + ".place").utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
        let written = bytes.withUnsafeBytes { Glibc.write(file.number, $0.baseAddress!, $0.count) }
        guard written == bytes.count else { throw Errno(written < 0 ? errno : EIO) }
    }

    private static func read(_ record: String) -> Place? {
        guard let bytes = try? File.contents(of: (record + ".place").utf8) else { return nil }
        let parts = bytes.split(separator: 0, omittingEmptySubsequences: false).map { Array($0) }
        guard parts.count >= 3, parts[0].first == 0x2F, parts[1].starts(with: prefix.utf8) || parts[1].starts(with: recordPrefix.utf8),
            !parts[1].contains(0x2F)
        else { return nil }
        let document = parts.count >= 5 && !parts[3].contains(0x2F) ? parts[3] : []
        return Place(parent: parts[0], name: parts[1], identity: parts.count >= 4 ? parts[2] : nil, document: document)
    }
}
