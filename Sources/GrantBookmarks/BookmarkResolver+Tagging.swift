import Glibc
import GrantModel
import GrantSystem

extension BookmarkResolver {
    /// Gives the bookmarked directory a tag, or takes it away (nil), and returns the one it had. EOPNOTSUPP where the filesystem
    /// takes no extended attributes, ESTALE when the directory is not at the bookmark's path any more, and what setxattr(2) has.
    public func setTag(_ tag: DirectoryTag?, of bookmark: Bookmark) throws(Errno) -> DirectoryTag? {
        guard let candidate = reopen(bookmark.path), isBookmarked(candidate, bookmark) else { throw Errno(ESTALE) }
        let before = candidate.tag
        if let tag {
            try candidate.descriptor.setAttribute(DirectoryTag.attribute, to: Array(tag.description.utf8))
            // There are filesystems that say yes to everything.
            if candidate.tag != tag { throw Errno(EOPNOTSUPP) }
        } else if before != nil {
            try candidate.descriptor.removeAttribute(DirectoryTag.attribute)
        }
        return before
    }

    /// The tag that a directory carries, by a canonical path.
    public func tag(at path: [UInt8]) -> DirectoryTag? { Search.tag(at: path)?.tag }
}
