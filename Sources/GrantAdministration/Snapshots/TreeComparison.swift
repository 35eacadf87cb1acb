import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Compares the copy of a tree with its present state, with descriptors, following no link. Mounts inside are not entered.
///
/// Four directories are open at a time, however deep the tree: the way back up is `..`, verified
/// before it is trusted. An unreadable object is a change of its own (`TreeChange.Aspect.unread`),
/// and the rest is compared.
final class TreeComparison {
    /// A name of a file with several names that needs no change.
    struct Kept {
        let path: [UInt8]
        /// The file that has the name now.
        let key: FileKey
    }

    /// An open directory, O_PATH.
    private final class Directory {
        let descriptor: FileDescriptor
        init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
    }

    /// A directory that was entered, in one of the trees or in both.
    private struct Level {
        let path: [UInt8]
        /// The names that are left, last one first.
        var names: [[UInt8]]
        let before: FileKey?
        let now: FileKey?
        /// The directory above in the tree that this level is not part of.
        let aside: Directory?
        /// The mode of a directory that was opened to this user to be read.
        let closedMode: mode_t?
    }

    /// The prefix of temporary files of an undo, which are ignored. No program knows it before it has ended, so none can hide a file by
    /// it.
    private let staging: [UInt8]
    private let known: RunRecord.Directory
    private let differences: FileDifferences
    private let opensClosed: Bool
    private var hidden: SnapshotRules?
    private var changes: [TreeChange] = []
    private var levels: [Level] = []
    private var before: Directory?
    private var now: Directory?
    private var mount: UInt64 = 0

    /// For files with several names: one that needs no change, by the copy.
    var kept: [FileKey: Kept] { differences.kept }

    /// - Parameter opensClosed: reads this user's directories although they are closed to the user. Their modes are changed for that
    /// time.
    init(_ known: RunRecord.Directory, stamps: [[UInt8]: FileStamp], staging: [UInt8], opensClosed: Bool) {
        (self.known, self.staging, self.opensClosed) = (known, staging, opensClosed)
        differences = FileDifferences(stamps)
    }

    /// Returns the differences sorted by path. A directory comes before its contents.
    ///
    /// - Parameters:
    /// before, now: may be O_PATH.
    func compare(_ before: borrowing FileDescriptor, _ now: borrowing FileDescriptor) throws(GrantError) -> [TreeChange] {
        do throws(Errno) {
            let top = try now.reopened(OpenFlags.path | O_DIRECTORY)
            hidden = try SnapshotRules(known.rules, roots: known.roots, in: top)
            let (was, status) = (try before.status(), try top.status())
            mount = status.mount_id
            let old = Directory(try before.reopened(OpenFlags.path | O_DIRECTORY))
            try start(old, was, Directory(top), status)
            while let last = levels.last {
                if last.names.isEmpty {
                    leave(top: now)
                } else {
                    let name = levels[levels.count - 1].names.removeLast()
                    compare(name, at: last.path.isEmpty ? name : last.path + [0x2F] + name)
                }
            }
            return changes
        } catch {
            let place = String(decoding: known.path, as: UTF8.self)
            throw GrantError(Snapshot.code(error), "“\(place)” cannot be compared", cause: error.description)
        }
    }

    private func start(_ old: Directory, _ was: FileStatus, _ top: Directory, _ status: FileStatus) throws(Errno) {
        let closedMode = open(top, status)
        var aspects = differences.find(was, status, old.descriptor.number, top.descriptor.number, [0x2E], [])
        let names = list([old, top])
        if names == nil { aspects.insert(.unread) }
        if !aspects.isEmpty { add([], .changed, aspects, was, status) }
        (before, now) = (old, top)
        levels = [
            Level(
                path: [], names: names ?? [], before: FileKey(was), now: FileKey(status), aside: nil, closedMode: closedMode)
        ]
    }

    private func add(_ path: [UInt8], _ kind: TreeChange.Kind, _ aspects: Set<TreeChange.Aspect>, _ was: FileStatus?, _ now: FileStatus?) {
        let mode = (now ?? was).map { $0.st.st_mode & S_IFMT }
        changes.append(
            TreeChange(
                directory: known.number, root: known.path, path: path, kind: kind, aspects: aspects, isDirectory: mode == S_IFDIR,
                before: was, now: now.map { FileStamp($0) }, nowStatus: now))
    }

    private func compare(_ name: [UInt8], at place: [UInt8]) {
        var (then, status): (FileStatus?, FileStatus?)
        do throws(Errno) {
            if let before { then = try self.status(before, name) }
            if let now { status = try self.status(now, name) }
        } catch {
            return add(place, then == nil ? .added : .changed, [.unread], then, nil)
        }
        // A mount, which is not part of the tree.
        if let status, status.mount_id != mount { return }
        let (wasDirectory, isDirectory) = (TreeComparison.isDirectory(then), TreeComparison.isDirectory(status))
        if let hidden {
            // A file that the host has put there in its place is not the program's.
            if then != nil, hidden.hides(place, isDirectory: wasDirectory) { return }
            if status != nil, hidden.hides(place, isDirectory: isDirectory) { return }
        }
        switch (then, status) {
        case (let then?, let status?):
            guard let before, let now else { return }
            let aspects = differences.find(then, status, before.descriptor.number, now.descriptor.number, name, place)
            if wasDirectory, isDirectory { return enter(name, place, .changed, aspects, then, status) }
            if wasDirectory || isDirectory {
                return enter(name, place, .changed, aspects, wasDirectory ? then : nil, isDirectory ? status : nil, (then, status))
            }
            if !aspects.isEmpty { add(place, .changed, aspects, then, status) }
        case (let then?, nil):
            if wasDirectory { return enter(name, place, .removed, [], then, nil) }
            add(place, .removed, [], then, nil)
        case (nil, let status?):
            // A directory whose path is too long for system calls is one change.
            if isDirectory, place.count < TreeChange.longestPath { return enter(name, place, .added, [], nil, status) }
            add(place, .added, [], nil, status)
        case (nil, nil): break
        }
    }

    private static func isDirectory(_ status: FileStatus?) -> Bool { status.map { $0.st.st_mode & S_IFMT == S_IFDIR } ?? false }

    private func status(_ directory: Directory, _ name: [UInt8]) throws(Errno) -> FileStatus? {
        do throws(Errno) {
            return try DirectoryEntry.status(directory.descriptor.number, name)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw error
        }
    }

    /// Enters a directory in the trees in which it is one, and adds its own change, if there is one.
    ///
    /// - Parameter both: the status in both trees, where it is a directory in one of them.
    private func enter(
        _ name: [UInt8], _ place: [UInt8], _ kind: TreeChange.Kind, _ aspects: Set<TreeChange.Aspect>, _ was: FileStatus?,
        _ status: FileStatus?, _ both: (FileStatus, FileStatus)? = nil
    ) {
        var aspects = aspects
        var (old, new): (Directory?, Directory?)
        var closedMode: mode_t?
        var names: [[UInt8]]?
        do throws(Errno) {
            if let was, let before { old = try enter(before, name, was) }
            if let status, let now { new = try enter(now, name, status) }
            if let new, let status { closedMode = open(new, status) }
            names = list([old, new].compactMap(\.self))
        } catch {
            names = nil
        }
        if names == nil { aspects.insert(.unread) }
        if kind != .changed || !aspects.isEmpty { add(place, kind, aspects, both?.0 ?? was, both?.1 ?? status) }
        guard let names else {
            if let new, let closedMode { try? new.descriptor.setMode(closedMode) }
            return
        }
        let aside = old == nil ? before : new == nil ? now : nil
        levels.append(
            Level(
                path: place, names: names, before: was.map { FileKey($0) }, now: status.map { FileKey($0) }, aside: aside,
                closedMode: closedMode))
        (before, now) = (old, new)
    }

    /// ESTALE if the name leads to another directory by now.
    private func enter(_ directory: Directory, _ name: [UInt8], _ expected: FileStatus) throws(Errno) -> Directory {
        let entered = try FileDescriptor.openBeneath(
            directory.descriptor.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        guard FileKey(try entered.status()) == FileKey(expected) else { throw Errno(ESTALE) }
        return Directory(entered)
    }

    /// Opens a directory of this user's to the user. Returns the mode that it had, if that was changed.
    private func open(_ directory: Directory, _ status: FileStatus) -> mode_t? {
        let mode = status.st.st_mode & 0o7777
        guard opensClosed, status.st.st_uid == geteuid(), geteuid() != 0, mode & 0o500 != 0o500,
            (try? directory.descriptor.setMode(mode | 0o500)) != nil
        else { return nil }
        return mode
    }

    /// Returns the names in directories, the last one first. Returns nil if one cannot be read.
    private func list(_ directories: [Directory]) -> [[UInt8]]? {
        var names: Set<[UInt8]> = []
        do throws(Errno) {
            for directory in directories {
                _ = try directory.descriptor.reopened(O_RDONLY | O_DIRECTORY).forEachEntry(limit: .max) { _, _, name in
                    if !name.starts(with: staging) { names.insert(Array(name)) }
                }
            }
        } catch {
            return nil
        }
        return names.sorted { $1.lexicographicallyPrecedes($0) }
    }

    /// Goes back to the directory above.
    private func leave(top: borrowing FileDescriptor) {
        guard let left = levels.popLast() else { return }
        // Up first: a closed directory does not lead there.
        let (oldAbove, newAbove) = (before.flatMap { up(from: $0) }, now.flatMap { up(from: $0) })
        if let now, let closedMode = left.closedMode { try? now.descriptor.setMode(closedMode) }
        guard let above = levels.last else { return }
        before = left.before == nil ? left.aside : oldAbove.flatMap { isAt($0, above.before) ? $0 : nil }
        now = left.now == nil ? left.aside : newAbove.flatMap { isAt($0, above.now) ? $0 : nil }
        // It was moved meanwhile. Perhaps the directory above it still has its path.
        if above.now != nil, now == nil, let found = try? TreePath.open(above.path, below: top, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW) {
            let directory = Directory(found)
            if isAt(directory, above.now) { now = directory }
        }
        guard (above.before == nil) == (before == nil), (above.now == nil) == (now == nil) else { return abandon() }
    }

    private func up(from directory: Directory) -> Directory? {
        guard let above = try? FileDescriptor.openAt(directory.descriptor.number, "..".utf8, OpenFlags.path | O_DIRECTORY) else {
            return nil
        }
        return Directory(above)
    }

    private func isAt(_ directory: Directory, _ key: FileKey?) -> Bool {
        (try? directory.descriptor.status()).map { FileKey($0) == key } ?? false
    }

    /// Gives up the directory that the comparison is in, because it cannot be found again.
    private func abandon() {
        let path = levels[levels.count - 1].path
        levels[levels.count - 1].names = []
        if let place = changes.lastIndex(where: { $0.path == path }) {
            changes[place].aspects.insert(.unread)
        } else {
            add(path, .changed, [.unread], nil, nil)
        }
    }
}
