import Glibc
import GrantModel
import GrantSystem

extension BookmarkResolver {
    /// Sets or removes (nil) the tag of the bookmarked directory, and returns the previous one.
    ///
    /// - Throws: EOPNOTSUPP if the filesystem has no extended attributes, ESTALE if the directory
    ///   is no longer at the bookmark's path, and the errors of setxattr(2).
    public func setTag(_ tag: DirectoryTag?, of bookmark: Bookmark) throws(Errno) -> DirectoryTag? {
        guard let candidate = reopen(bookmark.path), isBookmarked(candidate, bookmark) else { throw Errno(ESTALE) }
        let before = candidate.tag
        if let tag {
            try candidate.descriptor.setAttribute(DirectoryTag.attribute, to: Array(tag.description.utf8))
            // Some filesystems report success without storing anything.
            if candidate.tag != tag { throw Errno(EOPNOTSUPP) }
        } else if before != nil {
            try candidate.descriptor.removeAttribute(DirectoryTag.attribute)
        }
        return before
    }

    /// Returns the tag of the directory at a canonical path.
    public func tag(at path: [UInt8]) -> DirectoryTag? { Search.tag(at: path)?.tag }
}
