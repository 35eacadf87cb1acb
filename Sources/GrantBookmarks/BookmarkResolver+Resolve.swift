import Glibc
import GrantModel
import GrantSystem

/// The result of resolving a bookmark.
public struct ResolvedBookmark: ~Copyable {
    public let finding: BookmarkFinding
    /// An O_PATH descriptor of exactly the bookmarked directory or file.
    ///
    /// It is nil unless `finding.isUsable`.
    public let descriptor: FileDescriptor?
    /// The present canonical path. It is nil if it was not found.
    ///
    /// Set for a directory in a Trash as well.
    public let path: [UInt8]?
    /// The bookmark with its changes (path, owner). It is nil if there are none.
    ///
    /// A directory's identity never changes. A document's does when it is saved by a rename.
    public let renewed: Bookmark?
    /// The path of another directory with the bookmark's tag, if there is exactly one.
    ///
    /// It may be a copy of the lost directory, or made to look like one. It was not opened, and
    /// must not be entered before a user has accepted that path.
    public let copy: [UInt8]?

    /// Whether it was found in a Trash. It counts as `missing` until it is taken out.
    public var isInTrash: Bool { finding == .missing && path != nil }

    /// Transfers ownership of the descriptor.
    public consuming func takeDescriptor() -> FileDescriptor? { descriptor }

    static func lost(_ finding: BookmarkFinding, copy: [UInt8]? = nil) -> ResolvedBookmark {
        ResolvedBookmark(finding: finding, descriptor: nil, path: nil, renewed: nil, copy: copy)
    }
}

extension BookmarkResolver {
    /// Finds the directory of a bookmark.
    ///
    /// A returned directory was compared after it was opened, so it is never another one. The
    /// search tries, in this order:
    /// 1. The path where a running mount holds it (`held`, a hint that is verified as well).
    /// 2. The recorded path.
    /// 3. The file handle, on every mounted filesystem that may be the right one. It needs
    ///    CAP_DAC_READ_SEARCH.
    /// 4. The recorded path through links, which may be new.
    /// 5. If handles do not help, a bounded search below the nearest surviving ancestor.
    ///
    /// With `copies`, it then searches a lost directory by its tag.
    public func resolve(_ bookmark: Bookmark, heldAt held: [UInt8]? = nil, copies: Bool = false) -> ResolvedBookmark {
        if bookmark.document != nil { return resolve(document: bookmark, heldAt: held) }
        if let held, let seen = reopen(held), isBookmarked(seen, bookmark) { return found(seen, bookmark, at: held) }
        let resolved = resolve(bookmark)
        guard copies, let tag = bookmark.tag, resolved.descriptor == nil, !resolved.isInTrash else { return resolved }
        // A directory with the finding `ambiguous` exists more than once already.
        if resolved.finding == .ambiguous { return resolved }
        let tagged = self.copies(of: bookmark, tagged: tag, beyondItsPath: resolved.finding != .unavailable)
        switch tagged.count {
        case 0: return resolved
        case 1: return .lost(.replaced, copy: tagged[0])
        default: return .lost(.ambiguous)
        }
    }

    private func resolve(_ bookmark: Bookmark) -> ResolvedBookmark {
        var place = Place.empty
        if let seen = reopen(bookmark.path) {
            if isBookmarked(seen, bookmark) {
                if isElsewhereToo(bookmark, seen.status) { return .lost(.ambiguous) }
                return found(seen, bookmark, at: bookmark.path)
            }
            place = seen.status.is_mount_root ? .covered : .taken
        }
        switch byHandle(bookmark) {
        case .none: break
        case .several: return .lost(.ambiguous)
        case .hidden: return .lost(.unavailable)
        case .one(let path):
            // Opened again by path, so that the descriptor is on the mount that users see, with
            // that mount's flags.
            if let candidate = reopen(path), isBookmarked(candidate, bookmark) { return found(candidate, bookmark, at: path) }
        }
        if place == .empty, let target = targetOfLink(bookmark.path) {
            if let candidate = reopen(target), isBookmarked(candidate, bookmark) { return found(candidate, bookmark, at: target) }
            place = .taken
        }
        if !volumes.isMounted(bookmark.filesystem) { return .lost(.unavailable) }
        if let path = pathBySearch(bookmark), let candidate = reopen(path), isBookmarked(candidate, bookmark) {
            return found(candidate, bookmark, at: path)
        }
        switch place {
        case .empty: return .lost(CanonicalPath.isBlocked(bookmark.path) ? .unavailable : .missing)
        case .taken: return .lost(.replaced)
        case .covered: return .lost(.unavailable)
        }
    }

    /// The state of the recorded path if it does not lead to the bookmarked directory.
    private enum Place {
        case empty
        /// Another directory, or a link to one.
        case taken
        /// The root of another mount, below which the directory may be.
        case covered
    }

    /// Finds the present path of a directory that a running mount holds open.
    ///
    /// That works without privileges and on every filesystem, as long as the descriptor is open.
    /// `missing` if it was removed, `unavailable` if no path leads to it.
    public func resolve(_ bookmark: Bookmark, holding descriptor: borrowing FileDescriptor) -> ResolvedBookmark {
        guard let status = try? descriptor.status() else { return .lost(.unavailable) }
        if status.st.st_nlink == 0 { return .lost(.missing) }
        guard let path = try? descriptor.path(), let seen = reopen(path), seen.status.isSameFile(as: status) else {
            return .lost(.unavailable)
        }
        guard isBookmarked(seen, bookmark) else { return .lost(.replaced) }
        return found(seen, bookmark, at: path)
    }

    /// Opens a directory at its recorded path, with O_PATH, and tries no other path.
    ///
    /// Returns nil unless it is the bookmarked directory.
    public func openAtRecordedPath(_ bookmark: Bookmark) -> FileDescriptor? {
        guard bookmark.document == nil, let seen = reopen(bookmark.path), isBookmarked(seen, bookmark) else { return nil }
        return seen.release()
    }

    /// Whether the bookmarked directory is certainly at its recorded path, and nowhere else.
    public func isAtRecordedPath(_ bookmark: Bookmark) -> Bool {
        guard bookmark.document == nil, !Trash.holds(bookmark.path), let seen = reopen(bookmark.path), isBookmarked(seen, bookmark)
        else { return false }
        return !isElsewhereToo(bookmark, seen.status)
    }

    /// Returns the identity of an open file's filesystem, or nil if it cannot be determined.
    public func filesystemIdentity(of descriptor: borrowing FileDescriptor) -> FilesystemIdentity? {
        guard let status = try? descriptor.status() else { return nil }
        return volumes.identity(of: descriptor, status)
    }

    func isBookmarked(_ candidate: borrowing Candidate, _ bookmark: Bookmark) -> Bool {
        guard let filesystem = volumes.identity(of: candidate.descriptor, candidate.status) else { return false }
        return filesystem.isSame(as: bookmark.filesystem) && candidate.isBookmarked(by: bookmark)
    }

    func found(_ candidate: consuming Candidate, _ bookmark: Bookmark, at path: [UInt8]) -> ResolvedBookmark {
        if Trash.holds(path) { return ResolvedBookmark(finding: .missing, descriptor: nil, path: path, renewed: nil, copy: nil) }
        var renewed = bookmark
        renewed.path = path
        if path != bookmark.path { renewed.origin?.ancestors = ancestry.ancestors(of: path) }
        renewed.owner = candidate.status.st.st_uid
        let finding: BookmarkFinding = path != bookmark.path ? .moved : bookmark.handle == nil ? .weak : .ok
        return ResolvedBookmark(
            finding: finding, descriptor: candidate.release(), path: path, renewed: renewed == bookmark ? nil : renewed,
            copy: nil)
    }

    private enum ByHandle {
        case none
        case one([UInt8])
        case several
        /// It exists, but no path in this mount namespace leads to it.
        case hidden
    }

    private func byHandle(_ bookmark: Bookmark, except device: dev_t? = nil) -> ByHandle {
        guard let handle = bookmark.handle else { return .none }
        var paths: [[UInt8]] = []
        var isHidden = false
        for volume in volumes.volumes(of: bookmark.filesystem) where volume.entry.statDevice != device {
            guard let mount = volume.entry.opened(),
                let opened = try? mount.open(handleType: handle.type, bytes: handle.bytes, OpenFlags.path | O_DIRECTORY),
                let candidate = Candidate(opened), isBookmarked(candidate, bookmark)
            else { continue }
            if let path = path(of: candidate, on: volume) { paths.append(path) } else { isHidden = true }
        }
        if paths.count > 1 { return .several }
        if let path = paths.first { return .one(path) }
        return isHidden ? .hidden : .none
    }

    /// Returns a path to the directory, through this mount of its filesystem or another one.
    private func path(of candidate: borrowing Candidate, on volume: Volume) -> [UInt8]? {
        guard let path = try? candidate.descriptor.path() else { return nil }
        if let seen = reopen(path), seen.status.isSameFile(as: candidate.status) { return path }
        // Another mount may hide the mountpoint. Then the other mounts of this filesystem are
        // tried.
        guard MountTable.path(path, isAtOrBelow: volume.entry.mountpoint) else { return nil }
        let below = volume.entry.mountpoint == [0x2F] ? path : Array(path.dropFirst(volume.entry.mountpoint.count))
        for entry in volumes.table.entries where entry.statDevice == volume.entry.statDevice && entry.root == volume.entry.root {
            let other = entry.mountpoint == [0x2F] ? below : entry.mountpoint + below
            if let seen = reopen(other), seen.status.isSameFile(as: candidate.status) { return other }
        }
        return nil
    }

    /// Whether a mounted copy of the filesystem has the directory too.
    ///
    /// Such a copy was cloned block by block. A copy that this process may not read counts as
    /// having the directory.
    private func isElsewhereToo(_ bookmark: Bookmark, _ status: FileStatus) -> Bool {
        guard let entry = volumes.entry(of: status), !bookmark.filesystem.uuid.isEmpty else { return false }
        guard volumes.volumes(of: bookmark.filesystem).contains(where: { $0.entry.statDevice != entry.statDevice }) else { return false }
        if !FilesystemAccess.mayOpenByHandle { return true }
        if case .none = byHandle(bookmark, except: entry.statDevice) { return false }
        return true
    }

    /// Resolves the links of a path. Returns nil if it does not lead to a directory.
    private func targetOfLink(_ path: [UInt8]) -> [UInt8]? {
        guard let opened = try? FileDescriptor.open(path, OpenFlags.path | O_DIRECTORY) else { return nil }
        return try? opened.path()
    }
}

enum FilesystemAccess {
    /// CAP_DAC_READ_SEARCH.
    static var mayOpenByHandle: Bool { ProcessCapability.has(2) }
}
