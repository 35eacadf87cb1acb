import Glibc
import GrantModel
import GrantSystem

// Bookmarks of files. Unlike directories, programs save files by putting a new file in the place of
// the old one.
extension BookmarkResolver {
    /// Bookmarks a regular file by any path to it, links included.
    ///
    /// The bookmark holds the canonical path.
    ///
    /// - Throws: `.invalidDirectory` if it does not exist, is neither a file nor a directory, or
    ///   this process may not read it.
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
            // No other file can take the place of a mountpoint.
            if status.is_mount_root { throw Errno(EBUSY) }
            let canonical = try descriptor.path()
            guard let seen = reopen(canonical, isFile: true), seen.status.isSameFile(as: status) else { throw Errno(ENOENT) }
            // Only a regular file is opened, so no FIFO or device can block.
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

    /// Finds a bookmarked file.
    ///
    /// It tries the file's path, where a file that replaced it counts (`mayReplaceDocument`). Then
    /// it tries its handle, and then a search of its former directory.
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

    /// Returns the file at the document's path if it succeeds the document.
    ///
    /// The finding is `ok`, with the new identity in the renewed bookmark.
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

    /// Returns the bookmark of a document that a mount holds at `path`, with any identity.
    ///
    /// The mount saw how the file came there. Returns nil if the files at `path` and of
    /// `descriptor` differ.
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
                // The kernel may know no path for a file that was opened by handle.
                let path = try? candidate.descriptor.path(), let seen = reopen(path, isFile: true),
                seen.status.isSameFile(as: candidate.status)
            else { continue }
            return path
        }
        return nil
    }

    /// Returns the file's path if it is below its nearest surviving ancestor.
    private func neighbour(_ bookmark: Bookmark) -> [UInt8]? {
        guard let place = survivingAncestor(of: bookmark) else { return nil }
        return search.files(inode: bookmark.identity.inode, near: place).first { path in
            guard let seen = reopen(path, isFile: true) else { return false }
            return isBookmarked(seen, bookmark)
        }
    }

    /// How many directories above the nearest one that survives are searched for a file.
    private static let levelsAbove = 2

    /// Finds a regular file that was moved out of a bookmarked directory, by a bounded search:
    /// below `top`, or else below the nearest surviving ancestor and a few above it. Returns nil
    /// for a file without a birth time: another one may have its number by now.
    public func path(ofFile identity: FileIdentity, onceAt path: [UInt8], in directory: Bookmark, below top: [UInt8]?) -> [UInt8]? {
        guard identity.birthTime != nil, !FilesystemTraits(type: directory.filesystem.type).isRemote else { return nil }
        var bookmark = directory
        (bookmark.handle, bookmark.identity, bookmark.path) = (nil, identity, path)
        bookmark.origin?.ancestors.insert(directory.identity, at: 0)
        var place = top ?? survivingAncestor(of: bookmark)
        for _ in 0...(top == nil ? BookmarkResolver.levelsAbove : 0) {
            guard let near = place, near != [0x2F] || top != nil else { return nil }
            let found = search.files(inode: identity.inode, near: near).first { path in
                guard let seen = reopen(path, isFile: true) else { return false }
                return isBookmarked(seen, bookmark) && !Trash.holds(path)
            }
            if let found { return found }
            place = CanonicalPath.parent(near)
        }
        return nil
    }
}
