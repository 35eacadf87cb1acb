import CGrantSQLite
import Glibc
import GrantModel
import GrantSystem

/// A store's directory and its files: `grants.sqlite`, `key`, `run/`.
struct StoreDirectory: Sendable {
    /// Absolute and canonical.
    let path: String

    var database: String { path + "/grants.sqlite" }
    /// The files that SQLite locks: the database and the index of its log.
    ///
    /// See sqlite.org/walformat.html.
    var locked: [String] { [database, database + "-shm"] }
    var key: String { path + "/key" }
    var run: String { path + "/run" }

    /// Finds the directory, or creates it with its parents (mode 0700) if `create`.
    init(_ given: String, create: Bool) throws(GrantError) {
        guard given.hasPrefix("/"), !given.utf8.contains(0) else {
            throw GrantError(.usage, "invalid store “\(given)”", cause: "it is not an absolute path")
        }
        let directory = try StoreDirectory.openDirectory(given, create: create)
        let status: stat
        do throws(Errno) {
            path = String(decoding: try directory.path(), as: UTF8.self)
            status = try directory.status().st
        } catch {
            throw StoreFailure.failed(given, error)
        }
        // SQLite's limit for a whole path is 512 bytes, and it appends "-journal".
        if path.utf8.count > 480 { throw StoreFailure.unavailable(path, "its path is longer than 480 bytes") }
        try StoreDirectory.checkOwner(path, status)
        if create {
            do throws(Errno) {
                try DirectoryEntry.makeDirectory(directory.number, Array("run".utf8), 0o700)
            } catch {
                if error.rawValue != EEXIST { throw failure(error) }
            }
            try StoreDirectory.checkOwner(run, S_IFDIR)
        }
    }

    /// Creates database and key if there are none.
    ///
    /// Concurrent callers get the same database. The complete database appears under its name in
    /// one step, so an empty file there is always damage.
    func create(_ schema: Schema) throws(GrantError) {
        // Checked first: a log without a database cannot then come from a process that is just
        // creating both.
        let hasLog = exists(database + "-wal")
        if exists(database) { return }
        if hasLog {
            // SQLite would replay that log into the new database.
            throw StoreFailure.damaged(database, "the database is gone and its log grants.sqlite-wal is still there")
        }
        try makeKey()
        let fresh = path + "/.new-\(GrantID.random())"
        defer {
            for suffix in ["", "-journal", "-wal", "-shm"] { unlink(fresh + suffix) }
        }
        // Created here for its mode: SQLite would use 0644, and copies this file's mode to the
        // files beside it.
        do {
            _ = try FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        } catch {
            throw failure(error)
        }
        do {
            let database = try Database(path: fresh, create: false)
            try schema.create(in: database)
        }
        try publish(fresh, as: database)
    }

    /// Identifies the database file, to detect that it was replaced.
    func databaseIdentity() throws(GrantError) -> FileKey {
        let status = try databaseStatus()
        return FileKey(device: status.st_dev, inode: status.st_ino)
    }

    /// Changes with every write to the database file itself.
    func databaseStamp() throws(GrantError) -> Int64 {
        let status = try databaseStatus()
        return Int64(truncatingIfNeeded: status.st_mtim.tv_sec &* 1_000_000_000 &+ status.st_mtim.tv_nsec ^ status.st_size)
    }

    private func databaseStatus() throws(GrantError) -> stat {
        var status = stat()
        guard lstat(database, &status) == 0 else {
            let error = Errno(errno)
            if error.rawValue == ENOENT { throw StoreFailure.missing(path) }
            throw StoreFailure.failed(path, error)
        }
        guard status.st_mode & S_IFMT == S_IFREG else { throw StoreFailure.damaged(database, "it is not a regular file") }
        if status.st_size == 0 { throw StoreFailure.damaged(database, "it is empty") }
        return status
    }

    func checkFiles() throws(GrantError) {
        for file in [database, database + "-wal", database + "-shm", key] where exists(file) {
            try StoreDirectory.checkOwner(file, S_IFREG)
        }
    }

    /// Reads the secret key of the seals.
    ///
    /// A missing key is an error: with a new key, any row could be passed off as sealed.
    func readKey() throws(GrantError) -> SipHash {
        let bytes: [UInt8]
        do {
            bytes = try File.contents(of: Array(key.utf8))
        } catch {
            if error.rawValue == ENOENT { throw StoreFailure.damaged(path, "its key is missing") }
            throw StoreFailure.failed(path, error, "its key cannot be read: \(error)")
        }
        guard let hash = SipHash(key: bytes) else { throw StoreFailure.damaged(path, "its key is not 16 bytes long") }
        return hash
    }

    private func makeKey() throws(GrantError) {
        // A key without a database is left from an interrupted start. It was never used and serves.
        if exists(key) { return }
        let fresh = path + "/.new-\(GrantID.random())"
        defer { unlink(fresh) }
        let id = GrantID.random()
        let bytes = [id.high, id.low].flatMap { word in withUnsafeBytes(of: word) { Array($0) } }
        do throws(Errno) {
            let file = try FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
            let written = write(file.number, bytes, bytes.count)
            if written < 0 { throw Errno(errno) }
            if written < bytes.count { throw Errno(ENOSPC) }
            if fsync(file.number) != 0 { throw Errno(errno) }
        } catch {
            throw failure(error)
        }
        try publish(fresh, as: key)
    }

    /// Gives a finished file its name, unless another process was faster.
    ///
    /// Makes the name durable.
    private func publish(_ fresh: String, as name: String) throws(GrantError) {
        if link(fresh, name) != 0, errno != EEXIST { throw failure(Errno(errno)) }
        let directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { throw failure(Errno(errno)) }
        defer { close(directory) }
        if fsync(directory) != 0 { throw failure(Errno(errno)) }
    }

    private func failure(_ error: Errno) -> GrantError {
        if error.rawValue == ENOSPC || error.rawValue == EDQUOT { return StoreFailure.full(path) }
        return StoreFailure.failed(path, error)
    }

    private func exists(_ file: String) -> Bool {
        var status = stat()
        return lstat(file, &status) == 0
    }

    /// Opens the store's directory, or creates it with its parents.
    ///
    /// The checked directory is the created one, because each is found from the descriptor of its
    /// parent. For root no other user may be able to exchange a directory or link on the path, and
    /// so lead root to another store.
    private static func openDirectory(_ path: String, create: Bool) throws(GrantError) -> FileDescriptor {
        let failure: Errno
        let found: (path: [UInt8], cause: String)?
        do throws(Errno) {
            let opened = try OwnDirectory.open(Array(path.utf8), creating: create ? 0o700 : nil)
            // The store itself is checked more closely by `checkOwner`.
            guard geteuid() == 0, let objection = opened.objection, objection.path != opened.path else {
                return opened.intoDirectory()
            }
            (failure, found) = (Errno(EACCES), objection)
        } catch {
            (failure, found) = (error, geteuid() == 0 && error == Errno(ENOENT) ? objection(onTheWayTo: path) : nil)
        }
        if let found {
            throw GrantError(
                .permission, "the store \(path) cannot be used",
                cause: "“\(String(decoding: found.path, as: UTF8.self))” is on the way there, and \(found.cause)",
                advice: "choose another with --store")
        }
        switch failure.rawValue {
        case ENOENT where !create: throw StoreFailure.missing(path)
        case ENOSPC, EDQUOT: throw StoreFailure.full(path)
        case ENOTDIR: throw StoreFailure.unavailable(path, "it is not a directory")
        default: throw StoreFailure.failed(path, failure)
        }
    }

    /// Why a missing store is not created for root.
    ///
    /// The reason concerns the nearest existing directory.
    private static func objection(onTheWayTo path: String) -> (path: [UInt8], cause: String)? {
        var names = path.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }
        while names.popLast() != nil {
            do throws(Errno) {
                return try OwnDirectory.open([UInt8(ascii: "/")] + names.joined(separator: [UInt8(ascii: "/")])).objection
            } catch {
                if error != Errno(ENOENT) { return nil }
            }
        }
        return nil
    }

    /// Checks that the store belongs to this user alone.
    ///
    /// Write access to a store means the power to grant anything.
    private static func checkOwner(_ path: String, _ kind: mode_t) throws(GrantError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT, kind == S_IFREG { return }
            throw StoreFailure.failed(path, Errno(errno))
        }
        guard status.st_mode & S_IFMT == kind else {
            throw StoreFailure.unavailable(path, kind == S_IFDIR ? "it is not a directory" : "it is not a regular file")
        }
        try checkOwner(path, status)
    }

    private static func checkOwner(_ path: String, _ status: stat) throws(GrantError) {
        if status.st_uid != geteuid() {
            throw GrantError(
                .permission, "the store \(path) cannot be used", cause: "it belongs to the user with id \(status.st_uid)",
                advice: "act as that user, or choose another with --store")
        }
        if status.st_mode & 0o022 != 0 {
            throw GrantError(
                .permission, "the store \(path) cannot be used", cause: "others may write to it", advice: "chmod go-w it")
        }
    }
}

/// The identity of a file, valid until the next boot.
struct FileKey: Equatable, Sendable {
    let device: dev_t
    let inode: ino_t
}
