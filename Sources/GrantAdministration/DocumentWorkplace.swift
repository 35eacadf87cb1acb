import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The directory in which a program makes temporary files beside a document. It lies on the host beside the document, so that a file
/// written there can replace the document in one step. It belongs to one mount, is accessible to the document's owner alone, and is
/// removed with the mount.
///
/// A record in the store's `run` directory has its path, and is locked by the daemon that uses it. The next daemon removes what a
/// killed one has left behind (docs/decisions/documents.md).
public final class DocumentWorkplace: Sendable {
    /// O_PATH.
    public let directory: FileDescriptor
    private let parent: FileDescriptor
    private let name: [UInt8]
    private let record: String
    private let lock: FileLock

    private init(
        _ directory: consuming FileDescriptor, named name: [UInt8], in parent: consuming FileDescriptor, record: String,
        lock: consuming FileLock
    ) {
        self.directory = directory
        self.parent = parent
        self.lock = lock
        (self.name, self.record) = (name, record)
    }

    /// The prefix of its name on the host, before 16 hexadecimal digits. The record's name has the same digits.
    static let prefix = ".grantfs-"
    private static let recordPrefix = "document-"

    /// Makes a workplace in the host directory of a document, with the path `path`, for the document's owner. If nothing can be made
    /// there, it is an empty directory in the store's directory in which nobody can make anything.
    public static func make(in parent: borrowing FileDescriptor, at path: [UInt8], for owner: FileStatus, store: GrantStore) throws(Errno)
        -> DocumentWorkplace
    {
        let digits = Hexadecimal.text(GrantID.random().high)
        let record = store.runDirectory + "/" + recordPrefix + digits
        let lock = try FileLock.make(record)
        do throws(Errno) {
            return try make(
                Array((prefix + digits).utf8), in: try parent.reopened(OpenFlags.path | O_DIRECTORY), at: path, owner, record, lock)
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
        _ name: [UInt8], in parent: consuming FileDescriptor, at path: [UInt8], _ owner: FileStatus, _ record: String,
        _ lock: consuming FileLock
    ) throws(Errno) -> DocumentWorkplace {
        // The record comes first. An empty directory of that name may be removed, whoever made it.
        try write(Place(parent: path, name: name, identity: nil), record)
        try DirectoryEntry.makeDirectory(parent.number, name, 0o700)
        do throws(Errno) {
            let directory = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            let status = try directory.status()
            // Somebody with write access may have exchanged the directory just now.
            guard status.st.st_uid == geteuid(), status.st.st_mode & 0o7777 == 0o700, status.st.st_dev == (try parent.status()).st.st_dev,
                try isEmpty(directory)
            else { throw Errno(ESTALE) }
            try write(Place(parent: path, name: name, identity: identity(status)), record)
            if geteuid() == 0 { try directory.setOwner(owner.st.st_uid, owner.st.st_gid) }
            return DocumentWorkplace(directory, named: name, in: parent, record: record, lock: lock)
        } catch {
            try? DirectoryEntry.remove(parent.number, name, isDirectory: true)
            throw error
        }
    }

    private static func isEmpty(_ directory: borrowing FileDescriptor) throws(Errno) -> Bool {
        var isEmpty = true
        _ = try directory.reopened(O_RDONLY | O_DIRECTORY).forEachEntry(limit: 3) { _, _, _ in isEmpty = false }
        return isEmpty
    }

    private static func makeClosed(_ record: String, _ lock: consuming FileLock) throws(Errno) -> DocumentWorkplace {
        let slash = record.lastIndex(of: "/") ?? record.startIndex
        let (above, name) = (Array(record[..<slash].utf8), Array((record[record.index(after: slash)...] + ".empty").utf8))
        let parent = try FileDescriptor.open(above, OpenFlags.path | O_DIRECTORY)
        try DirectoryEntry.makeDirectory(parent.number, name, 0o700)
        let directory = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try write(Place(parent: above, name: name, identity: identity(try directory.status())), record)
        try directory.setMode(0o555)
        return DocumentWorkplace(directory, named: name, in: parent, record: record, lock: lock)
    }

    /// Removes the directory with its contents. The document itself is never there alone.
    public func remove() {
        do throws(Errno) {
            try TreeRemoval.remove(directory, named: name, in: parent)
        } catch {
            // While the record exists, others try again, even if the directory was renamed.
            guard error == Errno(ENOENT) else { return }
        }
        unlink(record + ".place")
        unlink(record)
    }

    /// Removes what killed daemons have left behind, best effort. It may wait for their filesystems.
    public static func sweep(_ store: GrantStore) {
        for name in (try? DirectoryNames.of(store.runDirectory.utf8)) ?? [] {
            let text = String(decoding: name, as: UTF8.self)
            guard text.hasPrefix(recordPrefix), !text.contains("."), text.utf8.count == recordPrefix.utf8.count + 16 else { continue }
            let record = store.runDirectory + "/" + text
            guard let lock = try? FileLock.take(record) else { continue }
            if removeLeft(record) {
                unlink(record + ".place")
                unlink(record)
            }
            _ = consume lock
        }
    }

    /// Returns whether nothing is left.
    private static func removeLeft(_ record: String) -> Bool {
        guard let place = read(record) else { return true }
        guard let root = try? FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY) else { return false }
        let below = place.parent.count == 1 ? [0x2E] : Array(place.parent.dropFirst())
        do throws(Errno) {
            let parent = try FileDescriptor.openBeneath(root.number, below, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
            let directory = try FileDescriptor.openBeneath(parent.number, place.name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            // Another directory of that name belongs to somebody else. If its identity was never recorded, only an empty one is
            // removed.
            if let known = place.identity, try identity(directory.status()) != known { return true }
            if place.identity == nil {
                try DirectoryEntry.remove(parent.number, place.name, isDirectory: true)
            } else {
                try TreeRemoval.remove(directory, named: place.name, in: parent)
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
    }

    private static func identity(_ status: FileStatus) -> [UInt8] {
        Array("\(status.st.st_ino) \(status.has_birth ? "\(status.birth_seconds).\(status.birth_nanoseconds)" : "-")".utf8)
    }

    /// Three byte strings, each terminated by NUL.
    private static func write(_ place: Place, _ record: String) throws(Errno) {
        let bytes = place.parent + [0] + place.name + [0] + (place.identity.map { $0 + [0] } ?? [])
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
        return Place(parent: parts[0], name: parts[1], identity: parts.count >= 4 ? parts[2] : nil)
    }
}
