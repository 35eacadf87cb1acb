import Glibc
import GrantModel
import GrantSystem

/// A directory, or a regular file, that was opened and may be the bookmarked one.
struct Candidate: ~Copyable {
    /// O_PATH.
    let descriptor: FileDescriptor
    let status: FileStatus

    /// nil when it is no directory (`isFile`: no regular file), or was removed.
    init?(_ descriptor: consuming FileDescriptor, isFile: Bool = false) {
        guard let status = try? descriptor.status(), status.st.st_mode & S_IFMT == (isFile ? S_IFREG : S_IFDIR), status.st.st_nlink > 0
        else { return nil }
        self.descriptor = descriptor
        self.status = status
    }

    consuming func release() -> FileDescriptor { descriptor }

    /// Lasting or not: the caller knows the filesystem.
    var handle: FileHandle? {
        guard let handle = try? descriptor.handle() else { return nil }
        return FileHandle(type: handle.type, bytes: handle.bytes)
    }

    var birthTime: Instant? {
        guard status.has_birth else { return nil }
        let (nanoseconds, overflow) = status.birth_seconds.multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? nil : Instant(nanoseconds: nanoseconds &+ Int64(truncatingIfNeeded: status.birth_nanoseconds))
    }

    /// nil where the filesystem has none, and where this user may not read the directory.
    var generation: UInt32? {
        let kind = status.st.st_mode & S_IFMT == S_IFDIR ? O_DIRECTORY : O_NOCTTY
        guard let readable = try? descriptor.reopened(O_RDONLY | kind | O_NONBLOCK) else { return nil }
        return try? readable.generation()
    }

    /// nil where there is none, and where this user may not read the directory.
    var tag: DirectoryTag? {
        // Longer than a tag is none.
        guard let value = try? descriptor.attribute(DirectoryTag.attribute, limit: 33) else { return nil }
        return DirectoryTag(attributeValue: value)
    }

    /// Whether this is the directory that `bookmark` was made of, given that it lies on the bookmark's filesystem.
    ///
    /// Everything the bookmark has and the file can be asked for must agree. Inode numbers are used again, so where the
    /// bookmark has more than the number, at least one thing more must have been compared.
    func isBookmarked(by bookmark: Bookmark) -> Bool {
        let identity = bookmark.identity
        if status.st.st_ino != identity.inode { return false }
        var compared = 0
        if let expected = identity.birthTime, let birthTime {
            if expected != birthTime { return false }
            compared += 1
        }
        if let expected = bookmark.handle, let handle {
            if expected != handle { return false }
            compared += 1
        } else if let expected = identity.generation, let generation {
            // A handle has the generation in it.
            if expected != generation { return false }
            compared += 1
        }
        let isBare = identity.birthTime == nil && bookmark.handle == nil && identity.generation == nil
        return compared > 0 || isBare
    }
}
