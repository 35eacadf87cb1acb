import Glibc
import GrantModel
import GrantSystem

/// Makes bookmarks, and finds the directories and files that they identify.
///
/// A resolver reads the mount table and each filesystem's identity once and caches them, so make
/// one for each batch and drop it afterwards. It keeps no descriptor open. It is not thread-safe.
///
/// A remote or user-space filesystem may be slow to respond, so only resolving its own bookmarks
/// calls it.
public final class BookmarkResolver {
    let volumes: Volumes
    let search: Search
    let ancestry = Ancestry()

    /// Makes a resolver.
    ///
    /// - Parameters:
    ///   - progress: Called at intervals during a search, which may take long. With it a waiting
    ///     caller can distinguish a filesystem that hangs from one that has much to read.
    ///   - readingMounts: Called before and after the mount table is read. That can wait for the
    ///     kernel, but for no filesystem.
    public init(progress: @escaping () -> Void = {}, readingMounts: @escaping (Bool) -> Void = { _ in }) {
        search = Search(progress: progress)
        volumes = Volumes(reading: readingMounts)
    }

    /// Bookmarks a directory by any path to it, links included.
    ///
    /// The bookmark holds the canonical path.
    ///
    /// - Throws: `.invalidDirectory` if it does not exist, is not a directory, or this process may
    ///   not read it.
    public func bookmark(directory path: some Sequence<UInt8>) throws(GrantError) -> BookmarkedDirectory {
        let given = Array(path)
        do throws(Errno) {
            if given.isEmpty { throw Errno(ENOENT) }
            if given.contains(0) { throw Errno(EINVAL) }
            let descriptor = try FileDescriptor.open(given, OpenFlags.path | O_DIRECTORY)
            // Checked once, here, so that an unreadable directory fails now and not at the first
            // use of the view.
            _ = try descriptor.reopened(O_RDONLY | O_DIRECTORY | O_NONBLOCK)
            let canonical = try descriptor.path()
            guard let candidate = Candidate(descriptor), let seen = reopen(canonical), seen.status.isSameFile(as: candidate.status) else {
                throw Errno(ENOENT)
            }
            guard let bookmark = bookmark(of: seen, at: canonical), let entry = volumes.entry(of: seen.status) else { throw Errno(ESTALE) }
            return BookmarkedDirectory(bookmark: bookmark, mount: entry, descriptor: seen.release())
        } catch {
            throw GrantError(
                .invalidDirectory, "“\(String(decoding: given, as: UTF8.self))” cannot be granted", cause: BookmarkResolver.reason(error),
                advice: error == Errno(ENOENT) ? UnexpandedHome.advice(for: given) : nil)
        }
    }

    /// Returns the bookmark of an open directory. `path`: the path by which it was opened.
    func bookmark(of candidate: borrowing Candidate, at path: [UInt8]) -> Bookmark? {
        guard let filesystem = volumes.identity(of: candidate.descriptor, candidate.status) else { return nil }
        let traits = FilesystemTraits(type: filesystem.type)
        let identity = FileIdentity(
            inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino), generation: traits.isRemote ? nil : candidate.generation,
            birthTime: candidate.birthTime)
        return Bookmark(
            filesystem: filesystem, handle: traits.hasLastingHandles ? candidate.handle : nil, identity: identity, path: path,
            owner: candidate.status.st.st_uid, created: Instant(nanoseconds: Clock.realtime),
            origin: BookmarkOrigin(ancestors: ancestry.ancestors(of: path), bootID: Boot.id, madeBy: getuid()))
    }

    /// Opens a canonical path.
    ///
    /// Returns nil if it leads through a link or is not a directory (`isFile`: not a regular file).
    func reopen(_ path: [UInt8], isFile: Bool = false) -> Candidate? {
        if isFile {
            guard let descriptor = try? CanonicalPath.openAny(path) else { return nil }
            return Candidate(descriptor, isFile: true)
        }
        guard let descriptor = try? CanonicalPath.open(path, OpenFlags.path) else { return nil }
        return Candidate(descriptor)
    }

    /// The cause of the error when a path is not a directory.
    public static let isNoDirectory = "it is not a directory"

    static func reason(_ error: Errno) -> String {
        switch error.rawValue {
        case ENOENT: "there is no such directory"
        case ENOTDIR: BookmarkResolver.isNoDirectory
        case EACCES, EPERM: "it cannot be read: \(error)"
        case EINVAL: "its name contains a NUL byte"
        case ESTALE: "/proc does not name the filesystem there"
        default: error.description
        }
    }
}

/// A directory with its new bookmark.
public struct BookmarkedDirectory: ~Copyable {
    public let bookmark: Bookmark
    /// The mount through which it was reached.
    public let mount: MountEntry
    /// O_PATH | O_DIRECTORY.
    public let descriptor: FileDescriptor

    /// Transfers ownership of the descriptor.
    public consuming func release() -> FileDescriptor { descriptor }
}

extension FileStatus {
    func isSameFile(as other: FileStatus) -> Bool { st.st_dev == other.st.st_dev && st.st_ino == other.st.st_ino }
}
