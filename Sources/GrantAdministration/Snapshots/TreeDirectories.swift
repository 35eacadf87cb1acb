import Glibc
import GrantStore
import GrantSystem

/// The directories of a tree in which an undo works.
///
/// It opens them name by name, and finds out whether other users could have exchanged them. What it may do in a directory depends
/// on that: docs/decisions/sandbox.md.
final class TreeDirectories {
    /// An open directory of the tree.
    final class Held {
        /// O_PATH.
        let directory: FileDescriptor
        /// Whether only this user and root can change names on the way from the top to it.
        let isSafe: Bool
        private let prefix: [UInt8]
        private let removed: RemovedFiles
        private var made: OwnStaging?

        fileprivate init(_ directory: consuming FileDescriptor, isSafe: Bool, prefix: [UInt8], _ removed: RemovedFiles) {
            self.directory = directory
            (self.isSafe, self.prefix, self.removed) = (isSafe, prefix, removed)
        }

        /// Where objects are finished before they get a name in this directory.
        var staging: OwnStaging {
            get throws(Errno) {
                if let made { return made }
                let staging = try OwnStaging(in: directory, prefix: prefix, digits: 4)
                try removed.record(try staging.directory.status())
                made = staging
                return staging
            }
        }
    }

    private let top: FileDescriptor
    private let stamps: [[UInt8]: FileStamp]
    /// The prefix of temporary names.
    let prefix: [UInt8]
    private let removed: RemovedFiles
    private var held: [[UInt8]: Held] = [:]
    /// The modes of this user's directories that were closed to the user.
    private var closed: [[UInt8]: (key: FileKey, mode: mode_t)] = [:]
    private let user = geteuid()

    /// - Parameter stamps: the files before the program began, by path.
    init(
        _ top: borrowing FileDescriptor, _ stamps: [[UInt8]: FileStamp], prefix: [UInt8], _ removed: RemovedFiles
    ) throws(Errno) {
        self.top = try top.reopened(OpenFlags.path | O_DIRECTORY)
        (self.stamps, self.prefix, self.removed) = (stamps, prefix, removed)
    }

    /// Opens a directory to work in. ESTALE if another one is there than before the program began, which other users may have
    /// put there.
    func open(_ path: [UInt8]) throws(Errno) -> Held {
        if let known = held[path] { return known }
        var directory = try top.reopened(OpenFlags.path | O_DIRECTORY)
        var (place, isSafe): ([UInt8], Bool) = ([], true)
        try admit(directory, place, isSafe: isSafe)
        for name in path.split(separator: 0x2F) {
            isSafe = isSafe && TreeDirectories.isSafe(directory)
            directory = try FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            place = place.isEmpty ? Array(name) : place + [0x2F] + name
            try admit(directory, place, isSafe: isSafe)
        }
        if held.count >= 16 { held.removeAll() }
        let opened = Held(directory, isSafe: isSafe, prefix: prefix, removed)
        held[path] = opened
        return opened
    }

    /// Closes a directory and removes the temporary files in it.
    func release(_ path: [UInt8]) { held[path] = nil }

    /// Whether it is the same directory as before the program began.
    private func isKnown(_ status: FileStatus, _ place: [UInt8]) -> Bool {
        guard let before = stamps[place] else { return false }
        let stamp = FileStamp(status)
        return before.inode == stamp.inode && before.born == stamp.born
    }

    /// Checks a directory on the way, and opens it to this user.
    private func admit(_ directory: borrowing FileDescriptor, _ place: [UInt8], isSafe: Bool) throws(Errno) {
        let status = try directory.status()
        if let before = stamps[place], !isSafe, !isKnown(status, place) {
            // Another user may have chosen it, and thus decided which users can read the restored
            // files.
            let isOpener = status.st.st_mode & 0o077 & ~before.mode != 0
            guard user != 0, status.st.st_uid == user, before.uid == user, !isOpener else { throw Errno(ESTALE) }
        }
        let mode = status.st.st_mode & 0o7777
        guard user != 0, status.st.st_uid == user, mode & 0o700 != 0o700 else { return }
        try directory.setMode(mode | 0o700)
        if closed[place] == nil { closed[place] = (FileKey(status), mode) }
    }

    private static func isSafe(_ directory: borrowing FileDescriptor) -> Bool {
        guard let status = try? directory.status().st else { return false }
        if status.st_uid == geteuid() || OwnDirectory.isAdministrator(status.st_uid), status.st_mode & 0o022 == 0 { return true }
        do throws(Errno) {
            return try OwnDirectory.objection(to: directory) == nil
        } catch {
            return false
        }
    }

    /// Restores a directory's owner, attributes, mode and times, which every change of a name in it has altered.
    ///
    /// ESTALE if another directory may have been put there, EPERM if it has another owner and other users may change names on the
    /// way: ownership is not given to a directory that was found.
    func finish(_ path: [UInt8], as source: borrowing FileDescriptor) throws(Errno) {
        let found = try open(path)
        let (status, then) = (try found.directory.status(), try source.status())
        guard found.isSafe || isKnown(status, path) else { throw Errno(ESTALE) }
        let hasOtherOwner = status.st.st_uid != then.st.st_uid || status.st.st_gid != then.st.st_gid
        guard found.isSafe || user != 0 || !hasOtherOwner else { throw Errno(EPERM) }
        var attributes = try FileAttributes.extended(of: source)
        if !found.isSafe { attributes.removeAll { !FileAttributes.isOwn($0.name) } }
        for name in try found.directory.attributeNames() where FileAttributes.isOwn(name) {
            if !attributes.contains(where: { $0.name == name }) { try found.directory.removeAttribute(name) }
        }
        try FileAttributes.apply(then, attributes, to: found.directory)
        closed[path] = nil
    }

    /// Closes all directories, and gives those that were opened to this user their modes again.
    func end() {
        held.removeAll()
        for (path, was) in closed.sorted(by: { $1.key.lexicographicallyPrecedes($0.key) }) {
            guard let directory = try? TreePath.open(path, below: top, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW),
                let status = try? directory.status(), FileKey(status) == was.key, status.st.st_mode & 0o7777 == was.mode | 0o700
            else { continue }
            try? directory.setMode(was.mode)
        }
        closed.removeAll()
    }
}
