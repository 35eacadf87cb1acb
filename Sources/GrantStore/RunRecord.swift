import GrantModel

/// The record of one `grantfs run` whose directories were copied before it began.
///
/// It is a database of its own beside the copies, so it is consistent even if a process is killed.
/// Must not be shared between threads.
public final class RunRecord {
    public enum State: String, Sendable, CaseIterable {
        /// The program runs, or its command was killed and could not record the end.
        case running
        /// The program has ended, and the state that it left is recorded.
        case ended
        /// Its changes were undone, as far as possible.
        case undone
    }

    public struct Directory: Sendable {
        public let number: Int
        public let path: [UInt8]
        public let stamp: FileStamp
        /// The rules of the grants of the directory, and of those inside it.
        public let rules: GrantRules
        /// The paths of the granted directories below this one. Its own is empty.
        public let roots: [[UInt8]]

        public init(number: Int, path: [UInt8], stamp: FileStamp, rules: GrantRules = .none, roots: [[UInt8]] = [[]]) {
            (self.number, self.path, self.stamp, self.rules, self.roots) = (number, path, stamp, rules, roots)
        }
    }

    private let database: Database
    /// Whether it has the table of rules.
    private let hasRules: Bool

    /// Creates the database at `path`, with the state “running”.
    ///
    /// - Parameter path: Absolute and without links. No file may exist there.
    public init(new path: String, command: [[UInt8]], directories: [Directory]) throws(GrantError) {
        database = try Database(path: path, create: true)
        hasRules = directories.contains { !$0.rules.isEmpty }
        try database.execute(
            """
            CREATE TABLE run (number INTEGER PRIMARY KEY CHECK (number = 1), began INTEGER NOT NULL, ended INTEGER, state TEXT NOT NULL, command BLOB NOT NULL) STRICT;
            CREATE TABLE directories (number INTEGER PRIMARY KEY, path BLOB NOT NULL, inode INTEGER NOT NULL, born INTEGER NOT NULL) STRICT;
            CREATE TABLE files (
                directory INTEGER NOT NULL, path BLOB NOT NULL, moment INTEGER NOT NULL, inode INTEGER NOT NULL, born INTEGER NOT NULL, changed INTEGER NOT NULL,
                mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, PRIMARY KEY (directory, path, moment)
            ) STRICT, WITHOUT ROWID;
            PRAGMA user_version = 1;
            """)
        let joined = Array(command.joined(separator: [0]))
        try database.query(
            "INSERT INTO run (number, began, state, command) VALUES (1, ?, 'running', ?)",
            [.integer(GrantStore.now.nanoseconds), .blob(joined)])
        for directory in directories {
            try database.query(
                "INSERT INTO directories VALUES (?, ?, ?, ?)",
                [
                    .integer(Int64(clamping: directory.number)), .blob(directory.path), .integer(Int64(bitPattern: directory.stamp.inode)),
                    .integer(directory.stamp.born),
                ])
        }
        let ruled = directories.filter { !$0.rules.isEmpty }
        if ruled.isEmpty { return }
        // A program that knows no rules would take hidden files for added ones.
        try database.execute(
            """
            CREATE TABLE rules (directory INTEGER NOT NULL, root BLOB NOT NULL, rules BLOB NOT NULL, PRIMARY KEY (directory, root)) STRICT;
            PRAGMA user_version = 2;
            """)
        for directory in ruled {
            for root in directory.roots {
                try database.query(
                    "INSERT INTO rules VALUES (?, ?, ?)",
                    [.integer(Int64(clamping: directory.number)), .blob(root), .blob(directory.rules.encoded)])
            }
        }
    }

    /// Opens an existing record.
    ///
    /// - Throws: `.storeDamaged` if it is invalid.
    public init(path: String) throws(GrantError) {
        database = try Database(path: path, create: false)
        let version = try database.integer("PRAGMA user_version")
        hasRules = version == 2
        guard version == 1 || version == 2 else {
            throw StoreFailure.damaged(path, "it is not a record of a run")
        }
    }

    public var state: State {
        get throws(GrantError) {
            var word = ""
            try database.query("SELECT state FROM run") { (row) throws(GrantError) in word = row.text(0) }
            guard let state = State(rawValue: word) else { throw StoreFailure.damaged(database.path, "it has no state") }
            return state
        }
    }

    public func setState(_ state: State) throws(GrantError) {
        try database.query(
            "UPDATE run SET state = ?, ended = coalesce(ended, ?)", [.text(state.rawValue), .integer(GrantStore.now.nanoseconds)])
    }

    public var began: Instant {
        get throws(GrantError) { Instant(nanoseconds: try database.integer("SELECT began FROM run")) }
    }

    public var command: [[UInt8]] {
        get throws(GrantError) {
            var joined: [UInt8] = []
            try database.query("SELECT command FROM run") { (row) throws(GrantError) in joined = row.blob(0) }
            return joined.split(separator: 0, omittingEmptySubsequences: false).map { Array($0) }
        }
    }

    public var directories: [Directory] {
        get throws(GrantError) {
            var result: [Directory] = []
            let rules = try rules()
            try database.query("SELECT number, path, inode, born FROM directories ORDER BY number") { (row) throws(GrantError) in
                let stamp = FileStamp(inode: UInt64(bitPattern: row.integer(2)), born: row.integer(3))
                let own = rules[row.integer(0)]
                result.append(
                    Directory(
                        number: Int(clamping: row.integer(0)), path: row.blob(1), stamp: stamp, rules: own?.rules ?? .none,
                        roots: own?.roots ?? [[]]))
            }
            return result
        }
    }

    private func rules() throws(GrantError) -> [Int64: (rules: GrantRules, roots: [[UInt8]])] {
        if !hasRules { return [:] }
        var result: [Int64: (rules: GrantRules, roots: [[UInt8]])] = [:]
        try database.query("SELECT directory, root, rules FROM rules") { (row) throws(GrantError) in
            guard let rules = try? GrantRules(encoded: row.blob(2)) else {
                throw StoreFailure.damaged(database.path, "its rules make no sense")
            }
            result[row.integer(0), default: (rules, [])].roots.append(row.blob(1))
        }
        return result
    }

    /// The point in time of a recorded state of a file.
    public enum Phase: Int64, Sendable {
        /// Before the program began: all files.
        case before = 0
        /// After it ended: the files it had changed. A removed one has a stamp without an inode.
        case after = 1
        /// During or after an undo: a change that only the undo has made.
        case undoing = 2
    }

    /// Records files, all or none.
    public func save(_ files: [(path: [UInt8], stamp: FileStamp)], of directory: Int, _ phase: Phase) throws(GrantError) {
        try database.transaction { () throws(GrantError) in
            for (path, stamp) in files {
                try database.query(
                    "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [
                        .integer(Int64(clamping: directory)), .blob(path), .integer(phase.rawValue),
                        .integer(Int64(bitPattern: stamp.inode)),
                        .integer(stamp.born), .integer(stamp.changed), .integer(Int64(clamping: stamp.mode)),
                        .integer(Int64(clamping: stamp.uid)),
                        .integer(Int64(clamping: stamp.gid)),
                    ])
            }
        }
    }

    /// Ends an undo: files in `done` no longer count as changes of the program.
    ///
    /// The others are compared again.
    public func finishUndo(_ done: [[UInt8]], of directory: Int) throws(GrantError) {
        try database.transaction { () throws(GrantError) in
            for path in done {
                try database.query(
                    "DELETE FROM files WHERE directory = ? AND path = ? AND moment = ?",
                    [.integer(Int64(clamping: directory)), .blob(path), .integer(Phase.after.rawValue)])
            }
            try database.query(
                "DELETE FROM files WHERE directory = ? AND moment = ?",
                [.integer(Int64(clamping: directory)), .integer(Phase.undoing.rawValue)])
        }
    }

    public func files(of directory: Int, _ phase: Phase) throws(GrantError) -> [[UInt8]: FileStamp] {
        var result: [[UInt8]: FileStamp] = [:]
        try database.query(
            "SELECT path, inode, born, changed, mode, uid, gid FROM files WHERE directory = ? AND moment = ?",
            [.integer(Int64(clamping: directory)), .integer(phase.rawValue)]
        ) { (row) throws(GrantError) in
            result[row.blob(0)] = FileStamp(
                inode: UInt64(bitPattern: row.integer(1)), born: row.integer(2), changed: row.integer(3),
                mode: UInt32(truncatingIfNeeded: row.integer(4)), uid: UInt32(truncatingIfNeeded: row.integer(5)),
                gid: UInt32(truncatingIfNeeded: row.integer(6)))
        }
        return result
    }
}

/// The state of a file.
///
/// The kernel updates ctime with every change, so two states never have the same stamp.
public struct FileStamp: Hashable, Sendable {
    /// 0 if there is no file.
    public var inode: UInt64
    /// Nanoseconds since 1970, or 0 if the filesystem has no birth time.
    public var born: Int64
    /// ctime in nanoseconds.
    ///
    /// It is 0 if it was so recent that another change might not have changed it.
    public var changed: Int64
    public var mode: UInt32
    public var uid: UInt32
    public var gid: UInt32

    public init(inode: UInt64, born: Int64, changed: Int64 = 0, mode: UInt32 = 0, uid: UInt32 = 0, gid: UInt32 = 0) {
        (self.inode, self.born, self.changed, self.mode, self.uid, self.gid) = (inode, born, changed, mode, uid, gid)
    }

    /// The stamp of a missing file.
    public static let none = FileStamp(inode: 0, born: 0)
}
