import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Copies of directories that a program was given to write to, made before it began: what it has changed can be shown, and put back.
///
/// They lie in the store's directory `snapshots`, one directory for each run, with the copies (`before`), what was taken away when something was put back (`after`), and a `RunRecord`. A directory
/// appears there whole or not at all. It is locked for as long as the command that made it lives.
///
/// Not to be shared between threads.
public final class RunSnapshot {
    /// Hexadecimal digits.
    public let id: String
    /// Where it lies.
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
    /// Time stamps have the grain of the kernel's clock: what was changed so shortly before it was looked at may be changed once more without another stamp.
    private static let clockGrain: Int64 = 1_000_000_000

    /// Copies the directories.
    ///
    /// - Parameters:
    ///   - directories: canonical paths, none in another one.
    ///   - limit: how many bytes may be copied that the filesystem cannot share. `.storeFull` beyond.
    ///   - progress, check: as `Snapshot.make` has them.
    ///   - lost: told what this user could not put back as it is, since not even the copy has it.
    ///
    /// `.permission`, `.notFound` or `.system`, with the file that could not be copied. Nothing is left then.
    public static func make(
        of directories: [[UInt8]], for command: [[UInt8]], in store: GrantStore, limit: UInt64,
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
            try write(directories, command, copy, staging, name)
            copy.progress.say()
            try check()
            if !copy.losses.isEmpty { lost(copy.losses) }
            // A copy that a power cut leaves empty would be put back so.
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
        _ directories: [[UInt8]], _ command: [[UInt8]], _ copy: TreeCopy, _ staging: borrowing Snapshot.Staging, _ name: String
    ) throws(GrantError) {
        var known: [RunRecord.Directory] = []
        for (number, path) in directories.enumerated() {
            known.append(RunRecord.Directory(number: number, path: path, stamp: try openDirectory(path).stamp))
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
            try copy.copy(CanonicalPath.lastName(of: directory.path), in: above, into: target)
            try record.save(files, of: directory.number, .before)
        }
    }

    private static func open(_ path: [UInt8], _ body: () throws(Errno) -> FileDescriptor) throws(GrantError) -> FileDescriptor {
        do throws(Errno) {
            return try body()
        } catch {
            throw GrantError(.system, "“\(String(decoding: path, as: UTF8.self))” cannot be copied", cause: error.description)
        }
    }

    /// Those that there are, the newest first. Ones that make no sense are left out.
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

    /// The one whose id begins so; the newest when none is said. `.notFound`, `.ambiguous`.
    public static func find(_ prefix: String?, in store: GrantStore) throws(GrantError) -> RunSnapshot {
        let all = all(in: store)
        let advice = "grantfs diff --list names those that there are; grantfs run --snapshot makes one"
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

    /// What names begin with that putting back needs for a moment.
    var staging: [UInt8] { Array(".grantfs-undo-\(id)-".utf8) }

    public var began: Instant { get throws(GrantError) { try record.began } }
    public var command: [[UInt8]] { get throws(GrantError) { try record.command } }
    public var state: RunRecord.State { get throws(GrantError) { try record.state } }
    public var directories: [[UInt8]] { get throws(GrantError) { try record.directories.map(\.path) } }

    /// Whether the command that made it, or one that puts back, lives.
    public var isBusy: Bool {
        if isOwner || isLocked { return true }
        guard (try? directory.tryLock()) == true else { return true }
        flock(directory.number, LOCK_UN)
        return false
    }
    private var isLocked = false

    /// Keeps others from putting back or forgetting meanwhile. `.permission` while another command does, or the program runs.
    func take() throws(GrantError) {
        if isOwner || isLocked { return }
        guard (try? directory.tryLock()) == true else {
            throw GrantError(.permission, "nothing can be done about run \(id) now", cause: "its program runs, or another command is at it")
        }
        isLocked = true
    }

    /// Removes the copies. What the program has changed stays as it is.
    public func forget() throws(GrantError) {
        try take()
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
            let opened = try FileDescriptor.openWithoutLinks(path)
            let stamp = FileStamp(try opened.status())
            return Named(descriptor: try opened.reopened(O_RDONLY | O_DIRECTORY), stamp: stamp)
        } catch {
            throw GrantError(.notFound, "“\(String(decoding: path, as: UTF8.self))” cannot be looked at", cause: error.description)
        }
    }

    /// `.notFound` when another directory is at the path by now.
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

    /// What is different now, in the order of paths. It reads what may have been changed and nothing else.
    public func changes() throws(GrantError) -> [TreeChange] {
        var result: [TreeChange] = []
        for known in try record.directories { result += try changes(in: known) }
        return result
    }

    func changes(in known: RunRecord.Directory) throws(GrantError) -> [TreeChange] {
        let opened = try open(known)
        let comparison = TreeComparison(known, stamps: try record.files(of: known.number, .before), staging: staging)
        return try comparison.compare(opened.before, opened.now)
    }

    /// Puts on record what the program has left, once it has ended and nothing of it is on its way any more. What is different.
    public func noteEnd() throws(GrantError) -> [TreeChange] {
        let changes = try changes()
        for known in try record.directories {
            let own = changes.filter { $0.directory == known.number }
            try record.save(own.map { ($0.path, $0.now ?? .none) }, of: known.number, .after)
        }
        try record.setState(.ended)
        return changes
    }

    /// The file as it was and as it is, open for reading; nil where there is none, or no regular file.
    public func open(_ change: TreeChange) throws(GrantError) -> (before: Int32?, now: Int32?) {
        guard let known = try record.directories.first(where: { $0.number == change.directory }) else { return (nil, nil) }
        let opened = try open(known)
        let file = { (directory: borrowing FileDescriptor) -> Int32? in
            guard let status = try? FileDescriptor.openBeneath(directory.number, change.path, OpenFlags.path | O_NOFOLLOW).status(),
                status.st.st_mode & S_IFMT == S_IFREG
            else { return nil }
            return try? FileDescriptor.openBeneath(directory.number, change.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).release()
        }
        return (file(opened.before), file(opened.now))
    }
}

extension Snapshot.Staging {
    /// Keeps the directory, which stays locked, alone.
    consuming func intoDirectory() -> FileDescriptor { directory }
}

extension FileStamp {
    init(_ status: FileStatus) {
        self.init(
            inode: UInt64(status.st.st_ino), born: FileKey(status).born,
            changed: Int64(status.st.st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(status.st.st_ctim.tv_nsec),
            mode: status.st.st_mode, uid: status.st.st_uid, gid: status.st.st_gid)
    }

    /// Whether nothing can have been done to the file in between.
    func isSurely(_ other: FileStamp) -> Bool { changed != 0 && self == other }
}
