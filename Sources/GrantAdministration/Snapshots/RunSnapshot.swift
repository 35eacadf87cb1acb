import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Copies of the directories that a program may write to, made before it began. Its changes can be listed and undone.
///
/// Each run has a directory in the store's directory `snapshots`, with the copies (`before`), what an undo has removed (`after`), and a
/// `RunRecord`. The directory appears when it is complete, and is locked while the command that made it runs.
///
/// Not thread-safe.
public final class RunSnapshot {
    /// Hexadecimal digits.
    public let id: String
    /// The snapshot's directory.
    public let path: [UInt8]
    let record: RunRecord
    let directory: FileDescriptor
    private let isOwner: Bool

    private init(id: String, path: [UInt8], record: RunRecord, directory: consuming FileDescriptor, isOwner: Bool) {
        (self.id, self.path, self.record, self.isOwner) = (id, path, record, isOwner)
        self.directory = directory
    }

    private static func place(in store: GrantStore) -> [UInt8] { Array((store.directory + "/snapshots").utf8) }
    private static let recordName = "record.sqlite"
    /// The granularity of time stamps: a file changed so shortly before it was inspected may change again without another stamp.
    private static let clockGrain: Int64 = 1_000_000_000

    /// Copies the directories.
    ///
    /// - Parameters:
    /// directories: canonical paths, none inside another.
    /// rules: what the program does not see there.
    /// granted: the granted directories, which are or lie in those of `directories`.
    /// limit: the maximum of bytes that are copied without being shared. `.storeFull` beyond.
    /// progress, check: as for `Snapshot.make`.
    /// lost: told what this user could not restore unchanged, because not even the copy has it.
    ///
    /// `.permission`, `.notFound` or `.system`, with the file that could not be copied. Nothing is left then.
    public static func make(
        of directories: [[UInt8]], rules: GrantRules = .none, granted: [[UInt8]] = [], for command: [[UInt8]], in store: GrantStore,
        limit: UInt64,
        progress: ((CoordinationProgress) -> Void)? = nil, check: @escaping () throws(GrantError) -> Void = {},
        lost: (CopyLosses) -> Void = { _ in }
    ) throws(GrantError) -> RunSnapshot {
        let parent = place(in: store)
        if withCString(parent, { mkdir($0, 0o700) }) != 0, errno != EEXIST {
            throw GrantError(.storeUnavailable, "no snapshot can be made", cause: Errno(errno).description)
        }
        let id = String(GrantID.random().description.prefix(12))
        let place = try Snapshot.Place.open(parent: parent, name: Array(id.utf8))
        let staging = try Snapshot.Staging.begin(in: place)
        do throws(GrantError) {
            let name = String(decoding: CanonicalPath.join(place.path, staging.name), as: UTF8.self) + "/" + recordName
            let copy = TreeCopy(ownName: staging.name, progress: SnapshotProgress(progress), check: check)
            copy.limit = limit
            try write(directories, rules, granted, command, copy, staging, name)
            copy.progress.report()
            try check()
            if !copy.losses.isEmpty { lost(copy.losses) }
            // A copy that a power failure leaves empty would be restored so.
            staging.directory.flushFilesystem()
            try staging.publish(in: place)
        } catch {
            staging.remove(from: place)
            if error.cause == Errno(EFBIG).description {
                throw GrantError(
                    .storeFull, "no snapshot is made: there is more to copy than --snapshot-limit allows", cause: error.message,
                    advice: "grant less for writing, allow more, or keep the directory on btrfs or XFS, where a snapshot shares the data")
            }
            throw error
        }
        let path = CanonicalPath.join(place.path, Array(id.utf8))
        return RunSnapshot(id: id, path: path, record: try open(path), directory: staging.intoDirectory(), isOwner: true)
    }

    private static func write(
        _ directories: [[UInt8]], _ rules: GrantRules, _ granted: [[UInt8]], _ command: [[UInt8]], _ copy: TreeCopy,
        _ staging: borrowing Snapshot.Staging, _ name: String
    ) throws(GrantError) {
        var known: [RunRecord.Directory] = []
        for (number, path) in directories.enumerated() {
            let roots = granted.filter { MountTable.path($0, isAtOrBelow: path) }.map { Array($0.dropFirst(path.count)) }
            known.append(
                RunRecord.Directory(
                    number: number, path: path, stamp: try openDirectory(path).stamp, rules: rules, roots: roots.isEmpty ? [[]] : roots))
        }
        let record = try RunRecord(new: name, command: command, directories: known)
        do throws(Errno) {
            for name in ["before", "after"] { try DirectoryEntry.makeDirectory(staging.directory.number, Array(name.utf8), 0o700) }
            for number in known.indices {
                try DirectoryEntry.makeDirectory(staging.directory.number, Array("before/\(number)".utf8), 0o700)
                try DirectoryEntry.makeDirectory(staging.directory.number, Array("after/\(number)".utf8), 0o700)
            }
        } catch {
            throw GrantError(.storeUnavailable, "no snapshot can be made", cause: error.description)
        }
        for directory in known {
            var files: [(path: [UInt8], stamp: FileStamp)] = []
            let now = Clock.realtime
            let hidden = try open(directory.path) { () throws(Errno) in
                try SnapshotRules(directory.rules, roots: directory.roots, in: try FileDescriptor.openWithoutLinks(directory.path))
            }
            copy.skips = hidden.map { hidden in
                { way, status in
                    hidden.hides(way.dropFirst().map { $0[...] }, isDirectory: status.st.st_mode & S_IFMT == S_IFDIR)
                }
            }
            copy.seen = { way, status in
                var stamp = FileStamp(status)
                if stamp.changed > now - clockGrain { stamp.changed = 0 }
                files.append((Array(way.dropFirst().joined(separator: [0x2F])), stamp))
            }
            let target = try open(directory.path) { () throws(Errno) in
                try FileDescriptor.openBeneath(
                    staging.directory.number, Array("before/\(directory.number)".utf8), O_RDONLY | O_DIRECTORY)
            }
            let above = try open(directory.path) { () throws(Errno) in
                try FileDescriptor.openWithoutLinks(CanonicalPath.parent(of: directory.path))
            }
            InjectedFault.stop(at: "copying")
            try copy.copy(CanonicalPath.lastName(of: directory.path), in: above, into: target, mayBeMounted: true)
            // A user that may exchange the directory must not be able to copy one directory and
            // restore it to another.
            guard let top = files.first(where: { $0.path.isEmpty })?.stamp, top.inode == directory.stamp.inode,
                top.born == directory.stamp.born
            else {
                throw GrantError(
                    .system, "“\(String(decoding: directory.path, as: UTF8.self))” cannot be copied",
                    cause: "another directory was put there meanwhile")
            }
            try record.save(files, of: directory.number, .before)
        }
    }

    private static func open<Opened: ~Copyable>(_ path: [UInt8], _ body: () throws(Errno) -> Opened) throws(GrantError) -> Opened {
        do throws(Errno) {
            return try body()
        } catch {
            throw GrantError(.system, "“\(String(decoding: path, as: UTF8.self))” cannot be copied", cause: error.description)
        }
    }

    /// Returns the existing snapshots, newest first. Invalid ones are omitted.
    public static func all(in store: GrantStore) -> [RunSnapshot] {
        let parent = place(in: store)
        var found: [(began: Instant, snapshot: RunSnapshot)] = []
        for name in (try? DirectoryNames.of(parent)) ?? [] where isID(name) {
            let path = CanonicalPath.join(parent, name)
            guard let record = try? open(path), let began = try? record.began,
                let directory = try? FileDescriptor.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            else { continue }
            let snapshot = RunSnapshot(
                id: String(decoding: name, as: UTF8.self), path: path, record: record, directory: directory, isOwner: false)
            found.append((began, snapshot))
        }
        return found.sorted { $0.began > $1.began }.map(\.snapshot)
    }

    /// Returns the snapshot with an id that begins with `prefix`, or the newest if that is nil.
    /// Throws `.notFound` or `.ambiguous`.
    public static func find(_ prefix: String?, in store: GrantStore) throws(GrantError) -> RunSnapshot {
        let all = all(in: store)
        let advice = "grantfs diff --list names the snapshots, and grantfs run --snapshot makes one"
        guard let prefix else {
            guard let newest = all.first else { throw GrantError(.notFound, "there is no snapshot of a run", advice: advice) }
            return newest
        }
        let fitting = prefix.isEmpty ? [] : all.filter { $0.id.hasPrefix(prefix) }
        guard let first = fitting.first else { throw GrantError(.notFound, "there is no snapshot of a run “\(prefix)”", advice: advice) }
        if fitting.count > 1 { throw GrantError(.ambiguous, "“\(prefix)” begins the ids of several runs", advice: "write more of it") }
        return first
    }

    private static func isID(_ name: [UInt8]) -> Bool { name.count == 12 && name.allSatisfy { Hexadecimal.value(of: $0) != nil } }

    private static func open(_ path: [UInt8]) throws(GrantError) -> RunRecord {
        try RunRecord(path: String(decoding: path, as: UTF8.self) + "/" + recordName)
    }

    // MARK: what it is

    /// The prefix of temporary names during an undo. With 4 more digits it is a name that no view shows (`DocumentPlace`).
    var staging: [UInt8] { Array(".grantfs-\(id)".utf8) }

    public var began: Instant { get throws(GrantError) { try record.began } }
    public var command: [[UInt8]] { get throws(GrantError) { try record.command } }
    public var state: RunRecord.State { get throws(GrantError) { try record.state } }
    public var directories: [[UInt8]] { get throws(GrantError) { try record.directories.map(\.path) } }

    /// Whether the command that made it, or one that undoes, is running.
    public var isBusy: Bool {
        if isOwner || isLocked { return true }
        guard (try? directory.tryLock()) == true else { return true }
        flock(directory.number, LOCK_UN)
        return false
    }
    private var isLocked = false

    /// Locks out other commands that undo or remove. `.permission` while another command does, or the program runs.
    func lock() throws(GrantError) {
        if isOwner || isLocked { return }
        guard (try? directory.tryLock()) == true else {
            throw GrantError(
                .permission, "run \(id) is busy", cause: "its program runs, or another command uses it")
        }
        isLocked = true
    }

    /// Removes the copies. The program's changes stay.
    public func forget() throws(GrantError) {
        try lock()
        do throws(Errno) {
            let parent = try FileDescriptor.open(CanonicalPath.parent(of: path), O_RDONLY | O_DIRECTORY)
            try TreeRemoval.remove(directory, named: Array(id.utf8), in: parent)
        } catch {
            throw GrantError(.system, "the snapshot of run \(id) cannot be removed", cause: error.description)
        }
    }

    // MARK: comparing

    /// One of the directories, then and now.
    struct Opened: ~Copyable {
        let before: FileDescriptor
        let now: FileDescriptor
    }

    struct Named: ~Copyable {
        let descriptor: FileDescriptor
        let stamp: FileStamp
        consuming func intoDescriptor() -> FileDescriptor { descriptor }
    }

    private static func openDirectory(_ path: [UInt8]) throws(GrantError) -> Named {
        do throws(Errno) {
            // O_PATH: the program may have closed it to its owner.
            let opened = try FileDescriptor.openWithoutLinks(path)
            let stamp = FileStamp(try opened.status())
            return Named(descriptor: opened, stamp: stamp)
        } catch {
            throw GrantError(
                .notFound, "“\(String(decoding: path, as: UTF8.self))” cannot be inspected", cause: error.description)
        }
    }

    /// Throws `.notFound` if another directory is at the path by now.
    func open(_ known: RunRecord.Directory) throws(GrantError) -> Opened {
        let now = try RunSnapshot.openDirectory(known.path)
        guard now.stamp.inode == known.stamp.inode, now.stamp.born == known.stamp.born else {
            throw GrantError(
                .notFound, "“\(String(decoding: known.path, as: UTF8.self))” cannot be compared",
                cause: "another directory is there than when the program began")
        }
        do throws(Errno) {
            let name = Array("before/\(known.number)/".utf8) + CanonicalPath.lastName(of: known.path)
            let before = try FileDescriptor.openBeneath(directory.number, name, O_RDONLY | O_DIRECTORY)
            return Opened(before: before, now: now.intoDescriptor())
        } catch {
            throw GrantError(.system, "the snapshot of run \(id) cannot be read", cause: error.description)
        }
    }

    /// Returns the changes so far, sorted by path. Reads only files that may have changed, and changes nothing.
    public func changes() throws(GrantError) -> [TreeChange] { try changes(opensClosed: false) }

    private func changes(opensClosed: Bool) throws(GrantError) -> [TreeChange] {
        var result: [TreeChange] = []
        for known in try record.directories { result += try changes(in: known, opensClosed: opensClosed) }
        return result
    }

    /// `opensClosed`: see `TreeComparison`.
    func changes(in known: RunRecord.Directory, opensClosed: Bool) throws(GrantError) -> [TreeChange] {
        let opened = try open(known)
        let stamps = try record.files(of: known.number, .before)
        let comparison = TreeComparison(known, stamps: stamps, staging: staging, opensClosed: opensClosed)
        return try comparison.compare(opened.before, opened.now)
    }

    /// Records the state that the program has left, once it and all its children have ended. Returns the changes.
    public func recordEnd() throws(GrantError) -> [TreeChange] {
        let changes = try changes(opensClosed: true)
        for known in try record.directories {
            let own = changes.filter { $0.directory == known.number }
            try record.save(own.map { ($0.path, $0.now ?? .none) }, of: known.number, .after)
        }
        try record.setState(.ended)
        return changes
    }

    /// Opens the file's old and new version for reading. A version is nil if it does not exist or
    /// is not a regular file.
    public func open(_ change: TreeChange) throws(GrantError) -> (before: Int32?, now: Int32?) {
        guard let known = try record.directories.first(where: { $0.number == change.directory }) else { return (nil, nil) }
        let opened = try open(known)
        let file = { (directory: borrowing FileDescriptor) -> Int32? in
            guard let found = try? TreePath.open(change.path, below: directory, OpenFlags.path | O_NOFOLLOW),
                let status = try? found.status(), status.st.st_mode & S_IFMT == S_IFREG
            else { return nil }
            return try? found.reopened(O_RDONLY | O_NONBLOCK).release()
        }
        return (file(opened.before), file(opened.now))
    }
}

extension Snapshot.Staging {
    /// Keeps only the directory, still locked.
    consuming func intoDirectory() -> FileDescriptor { directory }
}

extension FileStamp {
    init(_ status: FileStatus) {
        self.init(
            inode: UInt64(status.st.st_ino), born: FileKey(status).born,
            changed: Int64(status.st.st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(status.st.st_ctim.tv_nsec),
            mode: status.st.st_mode, uid: status.st.st_uid, gid: status.st.st_gid)
    }

    /// Whether certainly nothing was done to the file in between.
    func isCertainlyEqual(_ other: FileStamp) -> Bool { changed != 0 && self == other }
}
