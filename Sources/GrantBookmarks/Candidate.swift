import Glibc
import GrantModel
import GrantSystem

/// An open directory or regular file that may be the bookmarked one.
struct Candidate: ~Copyable {
    /// O_PATH.
    let descriptor: FileDescriptor
    let status: FileStatus

    /// The result is nil if it is not a directory (`isFile`: not a regular file), or was removed.
    init?(_ descriptor: consuming FileDescriptor, isFile: Bool = false) {
        guard let status = try? descriptor.status(), status.st.st_mode & S_IFMT == (isFile ? S_IFREG : S_IFDIR), status.st.st_nlink > 0
        else { return nil }
        self.descriptor = descriptor
        self.status = status
    }

    consuming func release() -> FileDescriptor { descriptor }

    /// The file handle.
    ///
    /// Whether it is persistent depends on the filesystem, which the caller knows.
    var handle: FileHandle? {
        guard let handle = try? descriptor.handle() else { return nil }
        return FileHandle(type: handle.type, bytes: handle.bytes)
    }

    var birthTime: Instant? {
        guard status.has_birth else { return nil }
        let (nanoseconds, overflow) = status.birth_seconds.multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? nil : Instant(nanoseconds: nanoseconds &+ Int64(truncatingIfNeeded: status.birth_nanoseconds))
    }

    /// It is nil if the filesystem has none, or if this user may not read the directory.
    var generation: UInt32? {
        let kind = status.st.st_mode & S_IFMT == S_IFDIR ? O_DIRECTORY : O_NOCTTY
        guard let readable = try? descriptor.reopened(O_RDONLY | kind | O_NONBLOCK) else { return nil }
        return try? readable.generation()
    }

    /// It is nil if there is none, or if this user may not read the directory.
    var tag: DirectoryTag? {
        // A longer value is not a tag.
        guard let value = try? descriptor.attribute(DirectoryTag.attribute, limit: 33) else { return nil }
        return DirectoryTag(attributeValue: value)
    }

    /// Whether this is the directory of `bookmark`, given that it is on the bookmark's filesystem.
    ///
    /// All properties that both the bookmark and the file have must agree. Inode numbers are
    /// reused. So if the bookmark has more than the number, at least one more property must have
    /// been compared.
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
            // A handle contains the generation.
            if expected != generation { return false }
            compared += 1
        }
        let isBare = identity.birthTime == nil && bookmark.handle == nil && identity.generation == nil
        return compared > 0 || isBare
    }
}
