import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension RunSnapshot {
    /// The result of an undo.
    public struct UndoResult: Sendable {
        /// The changes that were undone.
        public fileprivate(set) var done: [TreeChange] = []
        /// The changes that were left, and why.
        public fileprivate(set) var left: [(change: TreeChange, cause: String)] = []
    }

    /// Undoes the program's changes, so that the directories are as they were before it began, except for what others have changed
    /// since it ended. That is left, unless `force`.
    ///
    /// What is removed is moved to `after`. Each file is restored in one step; if the process is killed, the next call continues. It
    /// works with descriptors and follows no link.
    public func undo(force: Bool = false) throws(GrantError) -> UndoResult {
        try lock()
        var result = UndoResult()
        for known in try record.directories {
            let opened = try open(known)
            let comparison = TreeComparison(known, stamps: try record.files(of: known.number, .before), staging: staging)
            let changes = try comparison.compare(opened.before, opened.now)
            let own = try own(changes, known, force: force, &result)
            try record.save(own.map { ($0.path, $0.now ?? .none) }, of: known.number, .undoing)
            let work = TreeRestorer(opened, saved: directory, number: known.number, kept: comparison.kept, staging: staging)
            work.restore(own)
            // From this call and from one that was killed.
            work.finish(try record.files(of: known.number, .undoing).keys)
            try record.finishUndo(work.done.map(\.path), of: known.number)
            result.done += work.done
            result.left += work.left
        }
        try record.setState(.undone)
        return result
    }

    /// Returns what an undo would restore, and what it would leave.
    public func planUndo(force: Bool = false) throws(GrantError) -> UndoResult {
        var result = UndoResult()
        for known in try record.directories {
            result.done += try own(try changes(in: known), known, force: force, &result)
        }
        return result
    }

    /// Returns the changes to files that are still as the program left them.
    private func own(
        _ changes: [TreeChange], _ known: RunRecord.Directory, force: Bool, _ result: inout UndoResult
    ) throws(GrantError) -> [TreeChange] {
        // The state at the end was never recorded, because the program was killed with its command; the present state is taken for it.
        let endIsUnrecorded = try state == .running
        if force || endIsUnrecorded { return changes }
        let (after, begun) = (try record.files(of: known.number, .after), try record.files(of: known.number, .undoing))
        return changes.filter { change in
            if begun[change.path] != nil { return true }
            guard let recorded = after[change.path] else {
                result.left.append((change, "it was changed after the program had ended"))
                return false
            }
            let now = change.now ?? .none
            // A directory's stamp changes with every name in it.
            if recorded == now || (change.isDirectory && (recorded.inode, recorded.born, recorded.mode) == (now.inode, now.born, now.mode))
            {
                return true
            }
            result.left.append((change, "it was changed again after the program had ended"))
            return false
        }
    }
}

/// Restores one tree from its copy, change by change.
private final class TreeRestorer {
    private(set) var done: [TreeChange] = []
    private(set) var left: [(change: TreeChange, cause: String)] = []
    private let trees: RunSnapshot.Opened
    private let saved: Int32
    private let number: Int
    private let staging: [UInt8]
    private var data = DataCopy()
    /// For files with several names: one name that is already restored.
    private var kept: [FileKey: [UInt8]]
    private var count = 0

    init(_ trees: consuming RunSnapshot.Opened, saved: borrowing FileDescriptor, number: Int, kept: [FileKey: [UInt8]], staging: [UInt8]) {
        self.trees = trees
        self.saved = saved.number
        (self.number, self.kept, self.staging) = (number, kept, staging)
    }

    func restore(_ changes: [TreeChange]) {
        var finished: Set<[UInt8]> = []
        // First remove what was added, bottom up; then restore what is missing, top down.
        for change in changes.reversed() where change.now != nil && (change.before == nil || change.aspects.contains(.type)) {
            if attempt(change, { () throws(Errno) in try removeCurrent(change) }) { finished.insert(change.path) }
        }
        for change in changes where change.before != nil {
            if change.aspects.contains(.type), !finished.contains(change.path) { continue }
            if attempt(change, { () throws(Errno) in try restoreOriginal(change) }) {
                finished.insert(change.path)
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
            let cause =
                switch error.rawValue {
                case ENOTEMPTY: "something is in it that stays"
                case ESTALE, EEXIST: "somebody else is changing it"
                default: error.description
                }
            left.append((change, cause))
            return false
        }
    }

    private static func split(_ path: [UInt8]) -> (parent: [UInt8], name: [UInt8]) {
        guard let slash = path.lastIndex(of: 0x2F) else { return ([], path) }
        return (Array(path[..<slash]), Array(path[(slash + 1)...]))
    }

    private static func directory(_ path: [UInt8], in tree: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        try FileDescriptor.openBeneath(tree.number, path.isEmpty ? [0x2E] : path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    }

    /// Opens the directory of a name. If its owner may not write to it, its mode is changed, and restored at the end (`finish`).
    private func openParent(_ path: [UInt8]) throws(Errno) -> FileDescriptor {
        let directory = try TreeRestorer.directory(path, in: trees.now)
        let status = try directory.status().st
        if status.st_mode & 0o300 != 0o300, status.st_uid == geteuid() { try? directory.setMode(status.st_mode | 0o300) }
        return directory
    }

    /// Returns a name for a temporary file.
    private func freshName() -> [UInt8] {
        count += 1
        return staging + Array("\(GrantID.random())-\(count)".utf8)
    }

    private func isSame(_ status: FileStatus, _ expected: FileStatus) -> Bool {
        FileKey(status) == FileKey(expected) && status.st.st_size == expected.st.st_size
            && status.st.st_mtim.tv_sec == expected.st.st_mtim.tv_sec && status.st.st_mtim.tv_nsec == expected.st.st_mtim.tv_nsec
    }

    /// Removes what exists now; a directory only if it is empty.
    private func removeCurrent(_ change: TreeChange) throws(Errno) {
        guard let expected = change.nowStatus else { return }
        let (parentPath, name) = TreeRestorer.split(change.path)
        let parent = try openParent(parentPath)
        if expected.st.st_mode & S_IFMT == S_IFDIR {
            guard FileKey(try DirectoryEntry.status(parent.number, name)) == FileKey(expected) else { throw Errno(ESTALE) }
            clean(change.path)
            return try DirectoryEntry.remove(parent.number, name, isDirectory: true)
        }
        let fresh = freshName()
        try DirectoryEntry.rename(parent.number, name, to: fresh)
        guard isSame(try DirectoryEntry.status(parent.number, fresh), expected) else {
            try DirectoryEntry.rename(parent.number, fresh, to: name)
            throw Errno(ESTALE)
        }
        do throws(Errno) {
            try save(fresh, in: parent, as: change.path)
        } catch {
            try DirectoryEntry.rename(parent.number, fresh, to: name)
            throw error
        }
    }

    /// Restores attributes and times of these directories and of those that hold these names, bottom up. Moves what a killed process
    /// has left in them to `after`: new files, and replaced old ones.
    func finish(_ names: some Sequence<[UInt8]>) {
        var directories = Set(names)
        for name in directories where !name.isEmpty { directories.insert(TreeRestorer.split(name).parent) }
        for path in directories.sorted(by: { $1.lexicographicallyPrecedes($0) }) {
            clean(path)
            try? finish(path)
        }
    }

    private func clean(_ path: [UInt8]) {
        guard let directory = try? TreeRestorer.directory(path, in: trees.now) else { return }
        var names: [[UInt8]] = []
        _ = try? directory.forEachEntry(limit: .max) { _, _, name in
            if name.starts(with: staging) { names.append(Array(name)) }
        }
        for name in names { try? save(name, in: directory, as: name) }
    }

    /// Restores what existed before.
    private func restoreOriginal(_ change: TreeChange) throws(Errno) {
        guard let then = change.before else { return }
        let type = then.st.st_mode & S_IFMT
        if change.path.isEmpty { return }
        let (parentPath, name) = TreeRestorer.split(change.path)
        let parent = try openParent(parentPath)
        let source = try TreeRestorer.directory(parentPath, in: trees.before)
        let isThere = change.now != nil && !change.aspects.contains(.type)
        if type == S_IFDIR {
            if !isThere { try DirectoryEntry.makeDirectory(parent.number, name, 0o700) }
            return
        }
        // A new file even where only the mode or the owner differs: other processes may hold the present
        // one open or mapped for writing.
        let fresh = freshName()
        do throws(Errno) {
            try make(fresh, like: name, then, from: source, in: parent)
            if isThere, let expected = change.nowStatus {
                try replace(name, by: fresh, in: parent, expected)
                try save(fresh, in: parent, as: change.path)
            } else {
                try DirectoryEntry.rename(parent.number, fresh, to: name)
            }
        } catch {
            try? DirectoryEntry.remove(parent.number, fresh, isDirectory: false)
            throw error
        }
        if then.st.st_nlink > 1 { kept[FileKey(then)] = change.path }
    }

    private func make(
        _ fresh: [UInt8], like name: [UInt8], _ then: FileStatus, from source: borrowing FileDescriptor,
        in parent: borrowing FileDescriptor
    ) throws(Errno) {
        if then.st.st_nlink > 1, let other = kept[FileKey(then)] {
            let file = try FileDescriptor.openBeneath(trees.now.number, other, OpenFlags.path | O_NOFOLLOW)
            return try DirectoryEntry.link(file, to: parent.number, fresh)
        }
        let entry = try FileDescriptor.openBeneath(source.number, name, OpenFlags.path | O_NOFOLLOW)
        let attributes = try FileAttributes.extended(of: entry)
        switch then.st.st_mode & S_IFMT {
        case S_IFREG:
            let file = try entry.reopened(O_RDONLY)
            let made = try FileDescriptor.openAt(parent.number, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            try data.copy(file, to: made, size: Int64(then.st.st_size)) { _, _ in }
            try FileAttributes.apply(then, attributes, to: made)
            // It replaces a file that is on disk, so it has to be durable first.
            if fsync(made.number) != 0 { throw Errno(errno) }
            return
        case S_IFLNK: try DirectoryEntry.makeLink(parent.number, fresh, to: try entry.linkText())
        case let type: try DirectoryEntry.makeNode(parent.number, fresh, type | 0o600, device: then.st.st_rdev)
        }
        try FileAttributes.apply(then, attributes, to: try FileDescriptor.openAt(parent.number, fresh, OpenFlags.path | O_NOFOLLOW))
    }

    /// Exchanges both names in one step.
    private func replace(
        _ name: [UInt8], by fresh: [UInt8], in parent: borrowing FileDescriptor, _ expected: FileStatus
    ) throws(Errno) {
        try DirectoryEntry.exchange(parent.number, name, fresh)
        guard isSame(try DirectoryEntry.status(parent.number, fresh), expected) else {
            try DirectoryEntry.exchange(parent.number, name, fresh)
            throw Errno(ESTALE)
        }
    }

    /// Moves it to `after`, or copies it if that is another filesystem.
    private func save(_ fresh: [UInt8], in parent: borrowing FileDescriptor, as path: [UInt8]) throws(Errno) {
        let (parentPath, name) = TreeRestorer.split(path)
        var target = try FileDescriptor.openBeneath(saved, Array("after/\(number)".utf8), O_RDONLY | O_DIRECTORY)
        for part in parentPath.split(separator: 0x2F) {
            do throws(Errno) {
                try DirectoryEntry.makeDirectory(target.number, Array(part), 0o700)
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
            target = try FileDescriptor.openBeneath(target.number, Array(part), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        }
        // Left by an earlier call, or where a directory has to be.
        try? DirectoryEntry.remove(target.number, name, isDirectory: false)
        do throws(Errno) {
            return try DirectoryEntry.move(parent.number, fresh, to: target.number, name)
        } catch {
            // A directory left by an earlier call.
            if error == Errno(EEXIST) { return try DirectoryEntry.move(parent.number, fresh, to: target.number, name + fresh) }
            guard error == Errno(EXDEV) else { throw error }
        }
        let copy = TreeCopy(ownName: [], progress: SnapshotProgress(nil)) {}
        do throws(GrantError) {
            try copy.copy(fresh, in: parent, into: target)
        } catch {
            throw Errno(EIO)
        }
        try DirectoryEntry.rename(target.number, fresh, to: name)
        try DirectoryEntry.remove(parent.number, fresh, isDirectory: false)
    }

    /// Restores a directory's attributes and times, which every change of a name in it has altered.
    private func finish(_ path: [UInt8]) throws(Errno) {
        let source = try TreeRestorer.directory(path, in: trees.before)
        let target = try TreeRestorer.directory(path, in: trees.now)
        let attributes = try FileAttributes.extended(of: source)
        for name in try target.attributeNames() where name.hasPrefix("user.") || name.hasPrefix("system.posix_acl_") {
            if !attributes.contains(where: { $0.name == name }) { try target.removeAttribute(name) }
        }
        try FileAttributes.apply(try source.status(), attributes, to: target)
    }
}
