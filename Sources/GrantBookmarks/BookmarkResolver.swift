import Glibc
import GrantModel
import GrantSystem

/// Makes bookmarks of directories and finds the directories of bookmarks.
///
/// A resolver looks at the mount table and at each filesystem's identity once and remembers them, so make one for each batch
/// and let it go afterwards. It keeps nothing open. Not for several threads at once.
/// What a filesystem of a server or a daemon says may be long in coming: only its own bookmarks ask it.
public final class BookmarkResolver {
    let volumes: Volumes
    let search: Search
    let ancestry = Ancestry()

    /// `progress` is called now and then during a search, which may take long; for whoever waits for an answer, and has to tell a
    /// filesystem that does not answer from one that has much to say.
    ///
    /// `readingMounts` is called before and after the mount table is read, which waits for the kernel and for no filesystem.
    public init(progress: @escaping () -> Void = {}, readingMounts: @escaping (Bool) -> Void = { _ in }) {
        search = Search(progress: progress)
        volumes = Volumes(reading: readingMounts)
    }

    /// Bookmarks a directory, given by any path that leads to it, links included. The bookmark's path is the canonical one.
    ///
    /// `.invalidDirectory` when it is missing, no directory, or not readable for this process.
    public func bookmark(directory path: some Sequence<UInt8>) throws(GrantError) -> BookmarkedDirectory {
        let given = Array(path)
        do throws(Errno) {
            if given.isEmpty { throw Errno(ENOENT) }
            if given.contains(0) { throw Errno(EINVAL) }
            let descriptor = try FileDescriptor.open(given, OpenFlags.path | O_DIRECTORY)
            // Whether it may be read is asked here, once, instead of by the first user of the view.
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

    /// The bookmark of a directory that is open, under the path it was opened by.
    func bookmark(of candidate: borrowing Candidate, at path: [UInt8]) -> Bookmark? {
        guard let filesystem = volumes.identity(of: candidate.descriptor, candidate.status) else { return nil }
        let traits = FilesystemTraits(type: filesystem.type)
        let identity = FileIdentity(
            inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino), generation: traits.isRemote ? nil : candidate.generation,
            birthTime: candidate.birthTime)
        return Bookmark(
            filesystem: filesystem, handle: traits.hasLastingHandles ? candidate.handle : nil, identity: identity, path: path,
            owner: candidate.status.st.st_uid, created: Instant(nanoseconds: Clock.realtime),
            origin: BookmarkOrigin(ancestors: ancestry.above(path), bootID: Boot.id, madeBy: getuid()))
    }

    /// Opens a canonical path; nil when it leads over a link or to no directory (`isFile`: to no regular file).
    func reopen(_ path: [UInt8], isFile: Bool = false) -> Candidate? {
        if isFile {
            guard let descriptor = try? CanonicalPath.openAny(path) else { return nil }
            return Candidate(descriptor, isFile: true)
        }
        guard let descriptor = try? CanonicalPath.open(path, OpenFlags.path) else { return nil }
        return Candidate(descriptor)
    }

    /// The cause of an error where a path leads to something else than a directory.
    public static let isNoDirectory = "it is not a directory"

    static func reason(_ error: Errno) -> String {
        switch error.rawValue {
        case ENOENT: "there is no such directory"
        case ENOTDIR: BookmarkResolver.isNoDirectory
        case EACCES, EPERM: "it cannot be read: \(error)"
        case EINVAL: "its name contains a NUL byte"
        case ESTALE: "/proc does not say what is mounted there"
        default: error.description
        }
    }
}

/// A directory and the bookmark that was made of it.
public struct BookmarkedDirectory: ~Copyable {
    public let bookmark: Bookmark
    /// The mount it was reached through.
    public let mount: MountEntry
    /// O_PATH | O_DIRECTORY.
    public let descriptor: FileDescriptor

    /// Gives the descriptor away.
    public consuming func release() -> FileDescriptor { descriptor }
}

extension FileStatus {
    func isSameFile(as other: FileStatus) -> Bool { st.st_dev == other.st.st_dev && st.st_ino == other.st.st_ino }
}
