import Glibc
import GrantModel
import GrantSystem

/// Copies files and trees unchanged: data with its holes, modes, owners, times, extended attributes, ACLs, symbolic and hard links, and
/// FIFOs, sockets and devices, which are never opened.
///
/// It works with descriptors, one name at a time, and follows no link. Mounts inside a tree are not
/// copied. An empty directory takes their place. Three descriptors are open at a time, however deep
/// the tree: the way back up is `..`, verified before it is trusted. Files that vanish meanwhile
/// are not copied.
final class TreeCopy {
    /// Throws to cancel the copy.
    private let check: () throws(GrantError) -> Void
    var progress: SnapshotProgress
    /// A name that must not be copied: the copy's own directory.
    private let ownName: [UInt8]
    private var nextCheck: Int64 = 0
    private var data = DataCopy()
    /// Called with the relative path and original status of each file or directory before it is copied.
    var seen: (([[UInt8]], FileStatus) -> Void)?
    /// Whether a file or directory with this relative path is left out.
    var skips: (([[UInt8]], FileStatus) -> Bool)?
    /// Returns a file that becomes another name of the copy, for a source with several names.
    var known: ((FileKey) -> FileDescriptor?)?
    /// Whether files of this user that are closed to the user are opened, by their modes. The copies get the old modes.
    var opensClosed = false
    /// The maximum of bytes that are copied without being shared. More of them fail with EFBIG.
    var limit: UInt64 = .max
    /// What the copy lacks, because this user has no right to set it.
    private(set) var losses = CopyLosses()
    /// For files with several names: the path of the copy below `root`.
    private var linked: [FileKey: [[UInt8]]] = [:]
    /// The relative path of the current entry.
    private var relativePath: [[UInt8]] = []

    /// A directory that was entered.
    private struct Frame {
        let status: FileStatus
        let attributes: [FileAttributes.Extended]
        let copy: FileKey
        var names: [(name: [UInt8], type: UInt8)]
    }

    init(ownName: [UInt8], progress: SnapshotProgress, check: @escaping () throws(GrantError) -> Void) {
        (self.ownName, self.progress, self.check) = (ownName, progress, check)
    }

    /// Copies `name` in `parent` to the same name in `root`. `.notFound`, `.permission` or `.system`, with the path where it failed.
    func copy(
        _ name: [UInt8], in parent: borrowing FileDescriptor, into root: borrowing FileDescriptor, mayBeMounted: Bool = false
    ) throws(GrantError) {
        relativePath = [name]
        do throws(Errno) {
            var source = try FileDescriptor.openAt(parent.number, ".".utf8, OpenFlags.path | O_DIRECTORY)
            var target = try FileDescriptor.openAt(root.number, ".".utf8, OpenFlags.path | O_DIRECTORY)
            let first = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_NOFOLLOW, crossMounts: mayBeMounted)
            guard var frame = try copyEntry(first, name, &source, &target, root) else { return }
            var frames: [Frame] = []
            while true {
                try throwIfCancelled()
                if let (name, type) = frame.names.popLast() {
                    relativePath.append(name)
                    if name == ownName { throw Errno(ELOOP) }
                    guard let entry = try open(name, type, source, target) else {
                        relativePath.removeLast()
                        continue
                    }
                    if let skips, skips(relativePath, try entry.status()) {
                        relativePath.removeLast()
                        continue
                    }
                    if let entered = try copyEntry(entry, name, &source, &target, root) {
                        frames.append(frame)
                        frame = entered
                    } else {
                        relativePath.removeLast()
                    }
                    continue
                }
                // Go up first: a finished directory may be closed to its owner.
                guard let above = frames.popLast() else {
                    return losses.add(try FileAttributes.apply(frame.status, frame.attributes, to: target), at: relativePath)
                }
                let targetAbove = try up(from: target, to: above.copy)
                losses.add(try FileAttributes.apply(frame.status, frame.attributes, to: target), at: relativePath)
                source = try up(from: source, to: FileKey(above.status))
                target = targetAbove
                relativePath.removeLast()
                frame = above
            }
        } catch {
            if let stopped { throw stopped }
            let place = String(decoding: Array(relativePath.joined(separator: [0x2F])), as: UTF8.self)
            let cause = error == Errno(ELOOP) && relativePath.last == ownName ? "the copy lies inside it" : error.description
            throw GrantError(Snapshot.code(error), "“\(place)” cannot be copied", cause: cause)
        }
    }

    /// The error with which `check` has stopped the copy.
    private var stopped: GrantError?

    private func throwIfCancelled() throws(Errno) {
        guard Clock.monotonic >= nextCheck else { return }
        nextCheck = Clock.monotonic + 20_000_000
        do throws(GrantError) {
            try check()
        } catch {
            stopped = error
            throw Errno(ECANCELED)
        }
    }

    /// Returns nil if it has vanished, or is a mount: then a directory gets an empty one in its
    /// place.
    private func open(
        _ name: [UInt8], _ type: UInt8, _ source: borrowing FileDescriptor, _ target: borrowing FileDescriptor
    ) throws(Errno) -> FileDescriptor? {
        do throws(Errno) {
            return try FileDescriptor.openBeneath(source.number, name, OpenFlags.path | O_NOFOLLOW)
        } catch {
            if error == Errno(EXDEV) {
                if type == UInt8(DT_DIR) { try DirectoryEntry.makeDirectory(target.number, name, 0o755) }
                return nil
            }
            if error == Errno(ENOENT) { return nil }
            throw error
        }
    }

    /// Opens the parent directory. Throws ESTALE if it is not the parent that the copy came from.
    private func up(from directory: borrowing FileDescriptor, to key: FileKey) throws(Errno) -> FileDescriptor {
        let above = try FileDescriptor.openAt(directory.number, "..".utf8, OpenFlags.path | O_DIRECTORY)
        guard FileKey(try above.status()) == key else { throw Errno(ESTALE) }
        return above
    }

    /// Copies one entry of `source` into `target`. Entering a directory replaces both by it.
    private func copyEntry(
        _ entry: borrowing FileDescriptor, _ name: [UInt8], _ source: inout FileDescriptor, _ target: inout FileDescriptor,
        _ root: borrowing FileDescriptor
    ) throws(Errno) -> Frame? {
        let status = try entry.status()
        let type = status.st.st_mode & S_IFMT
        seen?(relativePath, status)
        if type == S_IFDIR { return try enter(entry, status, name, &source, &target) }
        let key = FileKey(status)
        if status.st.st_nlink > 1, let place = linked[key] {
            try DirectoryEntry.link(try find(place, below: root), to: target.number, name)
            progress.countFile()
            return nil
        }
        if status.st.st_nlink > 1, let file = known?(key) {
            try DirectoryEntry.link(file, to: target.number, name)
            progress.countFile()
            return nil
        }
        let attributes = try FileAttributes.extended(of: entry)
        if type == S_IFREG {
            try copyFile(entry, status, attributes, name, target)
        } else {
            if type == S_IFLNK {
                try DirectoryEntry.makeLink(target.number, name, to: try entry.linkText())
            } else {
                try DirectoryEntry.makeNode(target.number, name, type | 0o600, device: status.st.st_rdev)
            }
            let made = try FileDescriptor.openAt(target.number, name, OpenFlags.path | O_NOFOLLOW)
            losses.add(try FileAttributes.apply(status, attributes, to: made), at: relativePath)
        }
        if status.st.st_nlink > 1 { linked[key] = relativePath }
        progress.countFile()
        return nil
    }

    private func enter(
        _ entry: borrowing FileDescriptor, _ status: FileStatus, _ name: [UInt8], _ source: inout FileDescriptor,
        _ target: inout FileDescriptor
    ) throws(Errno) -> Frame {
        let attributes = try FileAttributes.extended(of: entry)
        let listed = try reopened(entry, status, O_RDONLY | O_DIRECTORY)
        var names: [(name: [UInt8], type: UInt8)] = []
        _ = try listed.forEachEntry(limit: .max) { _, type, name in names.append((Array(name), type)) }
        try DirectoryEntry.makeDirectory(target.number, name, 0o700)
        let made = try FileDescriptor.openAt(target.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        progress.countFile()
        let copy = FileKey(try made.status())
        source = listed
        target = made
        return Frame(status: status, attributes: attributes, copy: copy, names: names)
    }

    private func copyFile(
        _ entry: borrowing FileDescriptor, _ status: FileStatus, _ attributes: [FileAttributes.Extended], _ name: [UInt8],
        _ target: borrowing FileDescriptor
    ) throws(Errno) {
        let file = try reopened(entry, status, O_RDONLY)
        let made = try FileDescriptor.openAt(target.number, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        try data.copy(file, to: made, size: Int64(status.st.st_size)) { [self] count, isShared throws(Errno) in
            progress.add(bytes: count)
            if !isShared {
                guard limit >= UInt64(count) else { throw Errno(EFBIG) }
                limit -= UInt64(count)
            }
            try throwIfCancelled()
        }
        losses.add(try FileAttributes.apply(status, attributes, to: made), at: relativePath)
    }

    /// Opens without changing the access time, where this user may.
    private func reopened(_ entry: borrowing FileDescriptor, _ status: FileStatus, _ flags: Int32) throws(Errno) -> FileDescriptor {
        if opensClosed, geteuid() != 0, status.st.st_uid == geteuid(), status.st.st_mode & 0o700 != 0o700 {
            try entry.setMode(status.st.st_mode | 0o700)
        }
        do throws(Errno) {
            return try entry.reopened(flags | OpenFlags.noAccessTime)
        } catch {
            if error != Errno(EPERM) { throw error }
            return try entry.reopened(flags)
        }
    }

    private func find(_ place: [[UInt8]], below root: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        var found = try FileDescriptor.openAt(root.number, ".".utf8, OpenFlags.path | O_DIRECTORY)
        for name in place { found = try FileDescriptor.openBeneath(found.number, name, OpenFlags.path | O_NOFOLLOW) }
        return found
    }
}
