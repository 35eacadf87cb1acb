import Glibc
import GrantModel
import GrantSystem

// Searches are the last resort. They are bounded, and their results are guesses that must be
// verified.
extension BookmarkResolver {
    /// A surviving ancestor of a bookmarked directory, from which a search starts.
    private struct Anchor {
        let path: [UInt8]
        let device: dev_t
        /// How many directories between it and the bookmarked one are no longer in place.
        let lost: Int
    }

    /// Searches for the directory.
    ///
    /// It begins below the nearest ancestor that is still in place. Then it descends into the
    /// nearest of the moved ancestors that it finds. Also nil if the handle has already given the
    /// complete answer, and on filesystems that may be slow.
    func pathBySearch(_ bookmark: Bookmark) -> [UInt8]? {
        if bookmark.handle != nil && FilesystemAccess.mayOpenByHandle { return nil }
        guard let anchor = anchor(of: bookmark) else { return nil }
        let inode = bookmark.identity.inode
        if let path = search.path(inode: inode, device: anchor.device, near: anchor.path), isThere(bookmark, path) { return path }
        let names = bookmark.path.split(separator: 0x2F)
        for (level, ancestor) in (bookmark.origin?.ancestors ?? []).prefix(anchor.lost).enumerated() {
            guard let moved = search.path(inode: ancestor.inode, device: anchor.device, near: anchor.path),
                let identity = ancestry.identity(of: moved), identity.agrees(with: ancestor)
            else { continue }
            let below = moved + [0x2F] + names.suffix(level + 1).joined(separator: [0x2F])
            if isThere(bookmark, below) { return below }
            if let path = search.path(inode: inode, device: anchor.device, near: moved), isThere(bookmark, path) { return path }
        }
        return nil
    }

    /// Returns the paths of directories with the tag, each once, without those in a Trash.
    ///
    /// It checks the recorded path, on any filesystem. With `beyondItsPath` it also searches the
    /// bookmark's own filesystem.
    func copies(of bookmark: Bookmark, tagged tag: DirectoryTag, beyondItsPath: Bool) -> [[UInt8]] {
        var found: [Search.Tagged] = []
        if let there = Search.tag(at: bookmark.path), there.tag == tag { found.append(there.directory) }
        if beyondItsPath, let anchor = anchor(of: bookmark) {
            found += search.directories(tagged: tag, device: anchor.device, near: anchor.path)
        }
        var result: [Search.Tagged] = []
        for directory in found where !Trash.holds(directory.path) {
            if !result.contains(where: { $0.device == directory.device && $0.inode == directory.inode }) { result.append(directory) }
        }
        return result.map(\.path)
    }

    /// Returns the nearest surviving ancestor, verified by its identity if the bookmark has it.
    ///
    /// Returns nil if there is none on the bookmark's filesystem, or if that filesystem may be
    /// slow.
    private func anchor(of bookmark: Bookmark) -> Anchor? {
        if FilesystemTraits(type: bookmark.filesystem.type).isRemote { return nil }
        let ancestors = bookmark.origin?.ancestors ?? []
        var lost = 0
        var place = CanonicalPath.parent(bookmark.path)
        while let path = place {
            if let identity = ancestry.identity(of: path), lost >= ancestors.count || identity.agrees(with: ancestors[lost]),
                let above = reopen(path)
            {
                guard let filesystem = volumes.identity(of: above.descriptor, above.status), filesystem.isSame(as: bookmark.filesystem)
                else { return nil }
                return Anchor(path: path, device: above.status.st.st_dev, lost: lost)
            }
            place = CanonicalPath.parent(path)
            lost += 1
        }
        return nil
    }

    /// The path of the nearest surviving ancestor, on a local filesystem.
    func survivingAncestor(of bookmark: Bookmark) -> [UInt8]? { anchor(of: bookmark)?.path }

    private func isThere(_ bookmark: Bookmark, _ path: [UInt8]) -> Bool {
        guard let candidate = reopen(path) else { return false }
        return isBookmarked(candidate, bookmark)
    }
}
