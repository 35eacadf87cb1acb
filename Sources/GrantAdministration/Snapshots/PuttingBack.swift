import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension RunSnapshot {
    /// What came of putting back.
    public struct PutBack: Sendable {
        /// What is as it was.
        public fileprivate(set) var done: [TreeChange] = []
        /// What was left as it is, and why.
        public fileprivate(set) var left: [(change: TreeChange, cause: String)] = []
    }

    /// Puts back what the program has changed: the directories are as they were before it began, but for what somebody else has changed since it ended. That is left as
    /// it is unless `force`.
    ///
    /// What is taken away lies in `after` then. Each file is put back in one step; whatever is killed meanwhile, the next call goes on. Names are followed by
    /// descriptors, never by links.
    public func putBack(force: Bool = false) throws(GrantError) -> PutBack {
        try take()
        var result = PutBack()
        for known in try record.directories {
            let opened = try open(known)
            let comparison = TreeComparison(known, stamps: try record.files(of: known.number, .before), staging: staging)
            let changes = try comparison.compare(opened.before, opened.now)
            let own = try own(changes, known, force: force, &result)
            try record.save(own.map { ($0.path, $0.now ?? .none) }, of: known.number, .undoing)
            let work = TreeRestoring(opened, saved: directory, number: known.number, kept: comparison.kept, staging: staging)
            work.restore(own)
            // Of this call and of one that was killed.
            work.finish(try record.files(of: known.number, .undoing).keys)
            try record.finishUndo(work.done.map(\.path), of: known.number)
            result.done += work.done
            result.left += work.left
        }
        try record.setState(.undone)
        return result
    }

    /// What would be put back, and what would be left.
    public func planPuttingBack(force: Bool = false) throws(GrantError) -> PutBack {
        var result = PutBack()
        for known in try record.directories {
            result.done += try own(try changes(in: known), known, force: force, &result)
        }
        return result
    }

    /// Those that are as the program has left them.
    private func own(
        _ changes: [TreeChange], _ known: RunRecord.Directory, force: Bool, _ result: inout PutBack
    ) throws(GrantError) -> [TreeChange] {
        // Nobody has noted what it left: it was killed with its command, and what there is is taken for it.
        let isUnnoted = try state == .running
        if force || isUnnoted { return changes }
        let (after, begun) = (try record.files(of: known.number, .after), try record.files(of: known.number, .undoing))
        return changes.filter { change in
            if begun[change.path] != nil { return true }
            guard let noted = after[change.path] else {
                result.left.append((change, "it was changed after the program had ended"))
                return false
            }
            let now = change.now ?? .none
            // A directory's stamp changes with every name in it.
            if noted == now || (change.isDirectory && (noted.inode, noted.born, noted.mode) == (now.inode, now.born, now.mode)) {
                return true
            }
            result.left.append((change, "it was changed again after the program had ended"))
            return false
        }
    }
}

/// Makes one tree what its copy is, change by change.
private final class TreeRestoring {
    private(set) var done: [TreeChange] = []
    private(set) var left: [(change: TreeChange, cause: String)] = []
    private let trees: RunSnapshot.Opened
    private let saved: Int32
    private let number: Int
    private let staging: [UInt8]
    private var data = DataCopy()
    /// Of files of several names, one that is as it was.
    private var kept: [FileKey: [UInt8]]
    private var count = 0

    init(_ trees: consuming RunSnapshot.Opened, saved: borrowing FileDescriptor, number: Int, kept: [FileKey: [UInt8]], staging: [UInt8]) {
        self.trees = trees
        self.saved = saved.number
        (self.number, self.kept, self.staging) = (number, kept, staging)
    }

    func restore(_ changes: [TreeChange]) {
        var finished: Set<[UInt8]> = []
        // What is too much goes first, from below; then what is missing comes, from above.
        for change in changes.reversed() where change.now != nil && (change.before == nil || change.aspects.contains(.type)) {
            if attempt(change, { () throws(Errno) in try takeAway(change) }) { finished.insert(change.path) }
        }
        for change in changes where change.before != nil {
            if change.aspects.contains(.type), !finished.contains(change.path) { continue }
            if attempt(change, { () throws(Errno) in try bring(change) }) {
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

    /// The directory that a name is changed in. One that its owner may not write to is opened for him, and closed again at the end (`finish`).
    private func openParent(_ path: [UInt8]) throws(Errno) -> FileDescriptor {
        let directory = try TreeRestoring.directory(path, in: trees.now)
        let status = try directory.status().st
        if status.st_mode & 0o300 != 0o300, status.st_uid == geteuid() { try? directory.setMode(status.st_mode | 0o300) }
        return directory
    }

    /// A name for what is on its way.
    private func freshName() -> [UInt8] {
        count += 1
        return staging + Array("\(GrantID.random())-\(count)".utf8)
    }

    private func isSame(_ status: FileStatus, _ expected: FileStatus) -> Bool {
        FileKey(status) == FileKey(expected) && status.st.st_size == expected.st.st_size
            && status.st.st_mtim.tv_sec == expected.st.st_mtim.tv_sec && status.st.st_mtim.tv_nsec == expected.st.st_mtim.tv_nsec
    }

    /// Takes what there is now away; a directory when it is empty.
    private func takeAway(_ change: TreeChange) throws(Errno) {
        guard let expected = change.nowStatus else { return }
        let (parentPath, name) = TreeRestoring.split(change.path)
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

    /// Gives the directories that these names are of, or lie in, their attributes and times, from below, and saves what a process that was killed has left in them: new files, and old ones
    /// that had been replaced.
    func finish(_ names: some Sequence<[UInt8]>) {
        var directories = Set(names)
        for name in directories where !name.isEmpty { directories.insert(TreeRestoring.split(name).parent) }
        for path in directories.sorted(by: { $1.lexicographicallyPrecedes($0) }) {
            clean(path)
            try? finish(path)
        }
    }

    private func clean(_ path: [UInt8]) {
        guard let directory = try? TreeRestoring.directory(path, in: trees.now) else { return }
        var names: [[UInt8]] = []
        _ = try? directory.forEachEntry(limit: .max) { _, _, name in
            if name.starts(with: staging) { names.append(Array(name)) }
        }
        for name in names { try? save(name, in: directory, as: name) }
    }

    /// Brings what was there before.
    private func bring(_ change: TreeChange) throws(Errno) {
        guard let then = change.before else { return }
        let type = then.st.st_mode & S_IFMT
        if change.path.isEmpty { return }
        let (parentPath, name) = TreeRestoring.split(change.path)
        let parent = try openParent(parentPath)
        let source = try TreeRestoring.directory(parentPath, in: trees.before)
        let isThere = change.now != nil && !change.aspects.contains(.type)
        if type == S_IFDIR {
            if !isThere { try DirectoryEntry.makeDirectory(parent.number, name, 0o700) }
            return
        }
        if isThere, change.aspects.isSubset(of: [.mode, .owner, .time]), type != S_IFLNK {
            let file = try FileDescriptor.openBeneath(parent.number, name, OpenFlags.path | O_NOFOLLOW)
            if let expected = change.nowStatus, !isSame(try file.status(), expected) { throw Errno(ESTALE) }
            try FileAttributes.apply(then, [], to: file)
            return
        }
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
            // It takes the place of a file that is on the disk.
            if fsync(made.number) != 0 { throw Errno(errno) }
            return
        case S_IFLNK: try DirectoryEntry.makeLink(parent.number, fresh, to: try entry.linkText())
        case let type: try DirectoryEntry.makeNode(parent.number, fresh, type | 0o600, device: then.st.st_rdev)
        }
        try FileAttributes.apply(then, attributes, to: try FileDescriptor.openAt(parent.number, fresh, OpenFlags.path | O_NOFOLLOW))
    }

    /// In one step; what was there has the other name then.
    private func replace(
        _ name: [UInt8], by fresh: [UInt8], in parent: borrowing FileDescriptor, _ expected: FileStatus
    ) throws(Errno) {
        try DirectoryEntry.exchange(parent.number, name, fresh)
        guard isSame(try DirectoryEntry.status(parent.number, fresh), expected) else {
            try DirectoryEntry.exchange(parent.number, name, fresh)
            throw Errno(ESTALE)
        }
    }

    /// Moves it to `after`, or copies it where that is on another filesystem.
    private func save(_ fresh: [UInt8], in parent: borrowing FileDescriptor, as path: [UInt8]) throws(Errno) {
        let (parentPath, name) = TreeRestoring.split(path)
        var target = try FileDescriptor.openBeneath(saved, Array("after/\(number)".utf8), O_RDONLY | O_DIRECTORY)
        for part in parentPath.split(separator: 0x2F) {
            do throws(Errno) {
                try DirectoryEntry.makeDirectory(target.number, Array(part), 0o700)
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
            target = try FileDescriptor.openBeneath(target.number, Array(part), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        }
        // From a call before, or where a directory has to be.
        try? DirectoryEntry.remove(target.number, name, isDirectory: false)
        do throws(Errno) {
            return try DirectoryEntry.move(parent.number, fresh, to: target.number, name)
        } catch {
            // A directory, of a call before.
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

    /// A directory's attributes and times, which every name in it has changed.
    private func finish(_ path: [UInt8]) throws(Errno) {
        let source = try TreeRestoring.directory(path, in: trees.before)
        let target = try TreeRestoring.directory(path, in: trees.now)
        let attributes = try FileAttributes.extended(of: source)
        for name in try target.attributeNames() where name.hasPrefix("user.") || name.hasPrefix("system.posix_acl_") {
            if !attributes.contains(where: { $0.name == name }) { try target.removeAttribute(name) }
        }
        try FileAttributes.apply(try source.status(), attributes, to: target)
    }
}
