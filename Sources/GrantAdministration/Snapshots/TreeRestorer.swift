import Glibc
import GrantModel
import GrantSystem

/// Restores one tree from its copy, change by change.
///
/// Every object is made in a directory that only this user can enter, gets its owner, mode and
/// attributes there, and is then renamed into place. An object to remove is moved there before it
/// is compared with the expected one. So no other user can exchange an object between two steps
/// (`OwnStaging`).
final class TreeRestorer {
    private(set) var done: [TreeChange] = []
    private(set) var left: [(change: TreeChange, cause: String)] = []
    private let before: FileDescriptor
    private let now: FileDescriptor
    private let directories: TreeDirectories
    private let removed: RemovedFiles
    private var data = DataCopy()
    /// For files with several names: one name that is already restored.
    private var kept: [FileKey: TreeComparison.Kept]
    private var count = 0

    init(
        _ trees: borrowing RunSnapshot.Opened, _ directories: TreeDirectories, _ removed: RemovedFiles,
        kept: [FileKey: TreeComparison.Kept]
    ) throws(Errno) {
        before = try trees.before.reopened(OpenFlags.path | O_DIRECTORY)
        now = try trees.now.reopened(OpenFlags.path | O_DIRECTORY)
        (self.directories, self.removed, self.kept) = (directories, removed, kept)
    }

    func restore(_ changes: [TreeChange]) {
        var finished: Set<[UInt8]> = []
        // First remove the added objects, bottom up. Then restore the missing ones, top down.
        for change in changes.reversed() where change.now != nil && (change.before == nil || change.aspects.contains(.type)) {
            if attempt(change, { () throws(Errno) in try removeCurrent(change) }) { finished.insert(change.path) }
        }
        // A missing directory is restored with everything below it.
        var whole: [UInt8]?
        for change in changes {
            guard let then = change.before else { continue }
            if let whole, change.path.starts(with: whole) {
                finished.insert(change.path)
                continue
            }
            if change.aspects.contains(.type), !finished.contains(change.path) { continue }
            if attempt(change, { () throws(Errno) in try restoreOriginal(change, then) }) {
                finished.insert(change.path)
                if change.isMissing, then.st.st_mode & S_IFMT == S_IFDIR { whole = change.path + [0x2F] }
            } else {
                finished.remove(change.path)
            }
        }
        done = changes.filter { finished.contains($0.path) }
    }

    private func attempt(_ change: TreeChange, _ body: () throws(Errno) -> Void) -> Bool {
        do throws(Errno) {
            try body()
            return true
        } catch {
            leave(change, error)
            return false
        }
    }

    private func leave(_ change: TreeChange, _ error: Errno) {
        let cause =
            switch error.rawValue {
            case ENOTEMPTY: "something is in it that stays"
            case ESTALE, EEXIST: "another process is changing it"
            default: error.description
            }
        left.append((change, cause))
    }

    /// Restores attributes and times of these directories and of those that hold these names, bottom up. Removes what a killed
    /// process has left in them. A changed directory that cannot be restored is moved from `done` to `left`.
    func finish(_ names: some Sequence<[UInt8]>) {
        var paths = Set(names)
        for name in paths where !name.isEmpty { paths.insert(TreePath.split(name).parent) }
        var failed: [[UInt8]: Errno] = [:]
        for path in paths.sorted(by: { $1.lexicographicallyPrecedes($0) }) {
            directories.release(path)
            do throws(Errno) {
                guard let source = try? TreePath.open(path, below: before, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW) else { continue }
                try clean(path)
                try directories.finish(path, as: source)
            } catch {
                failed[path] = error
            }
        }
        directories.end()
        for change in done where change.isDirectory && !change.isMissing {
            if let error = failed[change.path] { leave(change, error) }
        }
        done.removeAll { change in left.contains { $0.change.path == change.path } }
    }

    private func freshName(_ kind: String) -> [UInt8] {
        count += 1
        return Array("\(kind)-\(GrantID.random())-\(count)".utf8)
    }

    /// The prefix of the names of objects taken from the tree.
    private static let taken = "old"

    private func isSame(_ status: FileStatus, _ expected: FileStatus) -> Bool {
        FileKey(status) == FileKey(expected) && status.st.st_size == expected.st.st_size
            && status.st.st_mtim.tv_sec == expected.st.st_mtim.tv_sec && status.st.st_mtim.tv_nsec == expected.st.st_mtim.tv_nsec
    }

    // MARK: removing

    /// Removes what exists now. A directory is removed only if it is empty, or if its contents were not compared.
    private func removeCurrent(_ change: TreeChange) throws(Errno) {
        guard let expected = change.nowStatus else { return }
        let (parentPath, name) = TreePath.split(change.path)
        let parent = try directories.open(parentPath)
        if expected.st.st_mode & S_IFMT == S_IFDIR {
            guard FileKey(try DirectoryEntry.status(parent.directory.number, name)) == FileKey(expected) else { throw Errno(ESTALE) }
            try clean(change.path)
            directories.release(change.path)
            if !change.isOpaque { return try DirectoryEntry.remove(parent.directory.number, name, isDirectory: true) }
        }
        if change.isOpaque { unlock(name, in: parent.directory, expected) }
        let (staging, fresh) = (try parent.staging, freshName(Self.taken))
        let inside = staging.directory.number
        try DirectoryEntry.move(parent.directory.number, name, to: inside, fresh)
        do throws(Errno) {
            guard isSame(try DirectoryEntry.status(inside, fresh), expected) else { throw Errno(ESTALE) }
            try removed.keep(fresh, in: staging.directory, as: change.path)
        } catch {
            // If the name is taken by now, it stays in the staging directory, from where `clean` takes it to `after`.
            try DirectoryEntry.move(inside, fresh, to: parent.directory.number, name)
            throw error
        }
    }

    /// Lets this user move a directory of its own, whose `..` the kernel changes.
    private func unlock(_ name: [UInt8], in parent: borrowing FileDescriptor, _ expected: FileStatus) {
        guard geteuid() != 0, expected.st.st_uid == geteuid(),
            let directory = try? FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW),
            let status = try? directory.status(), FileKey(status) == FileKey(expected)
        else { return }
        try? directory.setMode(status.st.st_mode | 0o700)
    }

    /// Removes from a directory what killed processes have left in it.
    private func clean(_ path: [UInt8]) throws(Errno) {
        directories.release(path)
        let held = try directories.open(path)
        var names: [[UInt8]] = []
        let prefix = directories.prefix
        _ = try held.directory.reopened(O_RDONLY | O_DIRECTORY).forEachEntry(limit: .max) { _, _, name in
            if name.starts(with: prefix) { names.append(Array(name)) }
        }
        for name in names {
            // Anything else of that name was put there by another user, or has not been used yet.
            guard let staging = try? FileDescriptor.openBeneath(held.directory.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
                try OwnStaging.isOwn(staging, in: held.directory), removed.isRecorded(try staging.status())
            else {
                try? DirectoryEntry.remove(held.directory.number, name, isDirectory: true)
                continue
            }
            var inside: [[UInt8]] = []
            _ = try staging.forEachEntry(limit: .max) { _, _, name in inside.append(Array(name)) }
            for object in inside {
                // Of a directory that is not from the tree, the copy is in the snapshot.
                let isDirectory = try DirectoryEntry.status(staging.number, object).st.st_mode & S_IFMT == S_IFDIR
                if isDirectory, !object.starts(with: Self.taken.utf8) {
                    try RemovedFiles.remove(object, in: staging)
                } else {
                    try removed.keep(object, in: staging, as: object)
                }
            }
            try DirectoryEntry.remove(held.directory.number, name, isDirectory: true)
        }
    }

    // MARK: making

    /// Restores what existed before.
    private func restoreOriginal(_ change: TreeChange, _ then: FileStatus) throws(Errno) {
        let isDirectory = then.st.st_mode & S_IFMT == S_IFDIR
        // An existing directory is restored by `finish`.
        if change.path.isEmpty || (isDirectory && !change.isMissing) { return }
        let (parentPath, name) = TreePath.split(change.path)
        let parent = try directories.open(parentPath)
        let source = try TreePath.open(parentPath, below: before, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        if isDirectory { return try makeTree(name, at: change.path, from: source, in: parent) }
        let staging = try parent.staging
        let inside = staging.directory.number
        // A new file even where only the mode or the owner differs: other processes may hold the present one open or mapped for
        // writing.
        let fresh = freshName("new")
        try make(fresh, like: name, then, from: source, in: staging.directory)
        let made = FileKey(try DirectoryEntry.status(inside, fresh))
        do throws(Errno) {
            if !change.isMissing, let expected = change.nowStatus {
                try replace(name, in: parent.directory, by: fresh, in: staging.directory, expected, as: change.path)
            } else {
                try DirectoryEntry.move(inside, fresh, to: parent.directory.number, name)
            }
        } catch {
            if let status = try? DirectoryEntry.status(inside, fresh), FileKey(status) == made {
                try? DirectoryEntry.remove(inside, fresh, isDirectory: false)
            }
            throw error
        }
        if then.st.st_nlink > 1 { kept[FileKey(then)] = TreeComparison.Kept(path: change.path, key: made) }
    }

    private func make(
        _ fresh: [UInt8], like name: [UInt8], _ then: FileStatus, from source: borrowing FileDescriptor,
        in staging: borrowing FileDescriptor
    ) throws(Errno) {
        if then.st.st_nlink > 1, let other = kept[FileKey(then)] {
            return try DirectoryEntry.link(try open(other), to: staging.number, fresh)
        }
        let entry = try FileDescriptor.openBeneath(source.number, name, OpenFlags.path | O_NOFOLLOW)
        let attributes = try FileAttributes.extended(of: entry)
        switch then.st.st_mode & S_IFMT {
        case S_IFREG:
            let file = try entry.reopened(O_RDONLY)
            let made = try FileDescriptor.openAt(staging.number, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            try data.copy(file, to: made, size: Int64(then.st.st_size)) { _, _ in }
            try FileAttributes.apply(then, attributes, to: made)
            // It replaces a file that is on disk, so it has to be durable first.
            if fsync(made.number) != 0 { throw Errno(errno) }
            return
        case S_IFLNK: try DirectoryEntry.makeLink(staging.number, fresh, to: try entry.linkText())
        case let type: try DirectoryEntry.makeNode(staging.number, fresh, type | 0o600, device: then.st.st_rdev)
        }
        try FileAttributes.apply(then, attributes, to: try FileDescriptor.openAt(staging.number, fresh, OpenFlags.path | O_NOFOLLOW))
    }

    /// Opens a file that is restored already, O_PATH. ESTALE if its name leads to another file by now.
    private func open(_ other: TreeComparison.Kept) throws(Errno) -> FileDescriptor {
        let (parentPath, name) = TreePath.split(other.path)
        let parent = try TreePath.open(parentPath, below: now, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        let file = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_NOFOLLOW)
        guard FileKey(try file.status()) == other.key else { throw Errno(ESTALE) }
        return file
    }

    /// Restores a directory with everything below it in one step.
    private func makeTree(
        _ name: [UInt8], at path: [UInt8], from source: borrowing FileDescriptor, in parent: TreeDirectories.Held
    ) throws(Errno) {
        let staging = try parent.staging
        let copy = TreeCopy(ownName: [], progress: SnapshotProgress(nil)) {}
        copy.known = { [self] key in
            guard let other = kept[key] else { return nil }
            return try? open(other)
        }
        var shared: [(key: FileKey, path: [UInt8])] = []
        copy.seen = { way, status in
            guard status.st.st_nlink > 1, status.st.st_mode & S_IFMT != S_IFDIR else { return }
            shared.append((FileKey(status), Array(way.dropFirst().joined(separator: [0x2F]))))
        }
        do throws(GrantError) {
            try copy.copy(name, in: source, into: staging.directory)
        } catch {
            try? RemovedFiles.remove(name, in: staging.directory)
            throw Errno(error.code == .permission ? EACCES : EIO)
        }
        staging.directory.flushFilesystem()
        let made = try FileDescriptor.openBeneath(staging.directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        for (key, below) in shared where kept[key] == nil {
            guard let status = try? TreePath.open(below, below: made, OpenFlags.path | O_NOFOLLOW).status() else { continue }
            kept[key] = TreeComparison.Kept(path: path + [0x2F] + below, key: FileKey(status))
        }
        do throws(Errno) {
            try DirectoryEntry.move(staging.directory.number, name, to: parent.directory.number, name)
        } catch {
            try? RemovedFiles.remove(name, in: staging.directory)
            throw error
        }
    }

    /// Exchanges a name for a finished file in one step, and keeps the former object of that name.
    /// They change back if that is not the compared object, or cannot be kept.
    private func replace(
        _ name: [UInt8], in parent: borrowing FileDescriptor, by fresh: [UInt8], in staging: borrowing FileDescriptor,
        _ expected: FileStatus, as path: [UInt8]
    ) throws(Errno) {
        try DirectoryEntry.exchange(staging.number, fresh, with: parent.number, name)
        do throws(Errno) {
            guard isSame(try DirectoryEntry.status(staging.number, fresh), expected) else { throw Errno(ESTALE) }
            try removed.keep(fresh, in: staging, as: path)
        } catch {
            try DirectoryEntry.exchange(staging.number, fresh, with: parent.number, name)
            throw error
        }
    }
}
