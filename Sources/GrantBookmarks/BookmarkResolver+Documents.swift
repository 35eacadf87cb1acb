import Glibc
import GrantModel
import GrantSystem

// Bookmarks of single files. What sets them apart from those of directories: programs save by putting a new file in the place of the old one.
extension BookmarkResolver {
    /// Bookmarks a regular file, given by any path that leads to it, links included. The bookmark's path is the canonical one.
    ///
    /// `.invalidDirectory` when it is missing, neither a file nor to be read by this process.
    public func bookmark(document path: some Sequence<UInt8>, form: DocumentBookmark.Form) throws(GrantError) -> BookmarkedDirectory {
        let given = Array(path)
        do throws(Errno) {
            if given.isEmpty { throw Errno(ENOENT) }
            if given.contains(0) { throw Errno(EINVAL) }
            let descriptor = try FileDescriptor.open(given, OpenFlags.path)
            let status = try descriptor.status()
            guard status.st.st_mode & S_IFMT == S_IFREG else {
                throw Errno(status.st.st_mode & S_IFMT == S_IFDIR ? EISDIR : EINVAL)
            }
            // Nothing could be put in its place.
            if status.is_mount_root { throw Errno(EBUSY) }
            let canonical = try descriptor.path()
            guard let seen = reopen(canonical, isFile: true), seen.status.isSameFile(as: status) else { throw Errno(ENOENT) }
            // Of a regular file only, which cannot make anybody wait.
            _ = try seen.descriptor.reopened(O_RDONLY | O_NONBLOCK | O_NOCTTY)
            guard var bookmark = bookmark(of: seen, at: canonical), let entry = volumes.entry(of: seen.status),
                let own = canonical.split(separator: 0x2F).last, let name = try? GrantName(entry: Array(own))
            else { throw Errno(ESTALE) }
            bookmark.document = DocumentBookmark(name: name, form: form)
            return BookmarkedDirectory(bookmark: bookmark, mount: entry, descriptor: seen.release())
        } catch {
            let cause: String? =
                switch error.rawValue {
                case ENOENT: "there is no such file"
                case EISDIR: "it is a directory"
                case EBUSY: "another file is mounted there"
                case EINVAL: given.contains(0) ? nil : "it is neither a directory nor a regular file"
                default: nil
                }
            throw GrantError(
                .invalidDirectory, "“\(String(decoding: given, as: UTF8.self))” cannot be granted",
                cause: cause ?? BookmarkResolver.reason(error),
                advice: error == Errno(ENOENT) ? UnexpandedHome.advice(for: given) : nil)
        }
    }

    /// Finds a bookmarked file: at its place, where another file that succeeds it counts as it (`maySucceed`); by its handle; by a search of the
    /// directory where it was.
    func resolve(document bookmark: Bookmark, heldAt held: [UInt8]?) -> ResolvedBookmark {
        for path in [held, bookmark.path].compactMap({ $0 }) {
            guard let seen = reopen(path, isFile: true), isBookmarked(seen, bookmark) else { continue }
            return found(seen, bookmark, at: path)
        }
        if let successor = successor(of: bookmark) { return successor }
        for path in [pathByHandle(bookmark), neighbour(bookmark)].compactMap({ $0 }) {
            guard let seen = reopen(path, isFile: true), isBookmarked(seen, bookmark) else { continue }
            return found(seen, bookmark, at: path)
        }
        if !volumes.isMounted(bookmark.filesystem) { return .lost(.unavailable) }
        if (try? CanonicalPath.openAny(bookmark.path)) != nil { return .lost(.replaced) }
        return .lost(CanonicalPath.isBlocked(bookmark.path) ? .unavailable : .missing)
    }

    /// The file at the document's place, if that succeeds it. It is `ok` there, with a new identity in the renewed bookmark.
    private func successor(of bookmark: Bookmark) -> ResolvedBookmark? {
        guard let seen = reopen(bookmark.path, isFile: true), let parent = CanonicalPath.parent(bookmark.path),
            let filesystem = volumes.identity(of: seen.descriptor, seen.status), filesystem.isSame(as: bookmark.filesystem),
            let directory = bookmark.origin?.ancestors.first, let there = ancestry.identity(of: parent), there.agrees(with: directory),
            seen.status.mayReplaceDocument(ofOwner: bookmark.owner), !Trash.holds(bookmark.path)
        else { return nil }
        return succeeded(seen, bookmark, at: bookmark.path)
    }

    private func succeeded(_ seen: consuming Candidate, _ bookmark: Bookmark, at path: [UInt8]) -> ResolvedBookmark? {
        guard var renewed = self.bookmark(of: seen, at: path) else { return nil }
        renewed.created = bookmark.created
        renewed.origin?.madeBy = bookmark.origin?.madeBy ?? getuid()
        renewed.tag = bookmark.tag
        renewed.document = bookmark.document
        return ResolvedBookmark(
            finding: renewed.handle == nil ? .weak : .ok, descriptor: seen.release(), path: path, renewed: renewed, copy: nil)
    }

    /// The bookmark of a document that a mount holds at `path`, whatever its identity: the mount has seen how it came there. nil when the file
    /// there is another one than `descriptor`'s.
    public func renewed(_ bookmark: Bookmark, heldAt path: [UInt8], as descriptor: borrowing FileDescriptor) -> Bookmark? {
        guard let status = try? descriptor.status(), let seen = reopen(path, isFile: true), seen.status.isSameFile(as: status) else {
            return nil
        }
        if isBookmarked(seen, bookmark) { return found(seen, bookmark, at: path).renewed ?? bookmark }
        return succeeded(seen, bookmark, at: path)?.renewed
    }

    private func pathByHandle(_ bookmark: Bookmark) -> [UInt8]? {
        guard let handle = bookmark.handle else { return nil }
        for volume in volumes.volumes(of: bookmark.filesystem) {
            guard let mount = volume.entry.opened(),
                let opened = try? mount.open(handleType: handle.type, bytes: handle.bytes, OpenFlags.path | O_NOFOLLOW),
                let candidate = Candidate(opened, isFile: true), isBookmarked(candidate, bookmark),
                // A file that was opened by handle may have no place that the kernel knows.
                let path = try? candidate.descriptor.path(), let seen = reopen(path, isFile: true),
                seen.status.isSameFile(as: candidate.status)
            else { continue }
            return path
        }
        return nil
    }

    /// Where the bookmarked file lies, if below the nearest directory above that is the one it was.
    private func neighbour(_ bookmark: Bookmark) -> [UInt8]? {
        guard let place = standingAncestor(of: bookmark) else { return nil }
        return search.files(inode: bookmark.identity.inode, near: place).first { path in
            guard let seen = reopen(path, isFile: true) else { return false }
            return isBookmarked(seen, bookmark)
        }
    }
}
