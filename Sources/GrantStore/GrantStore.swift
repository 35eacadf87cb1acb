import GrantModel
import GrantSystem

/// The grants, the mounts and the log in one SQLite database that several processes use at once.
///
/// Whatever a function changed is on disk when it returns. A function that throws changed nothing.
/// Usable from any thread; a call may wait for others: ten seconds for a transaction, a minute in a queue of them.
///
/// Locking: one lock around the connection, taken by every function, held during the SQL and nothing else.
public final class GrantStore: Sendable {
    /// Absolute and canonical.
    public let directory: String
    /// The directory of the control sockets, mode 0700.
    public var runDirectory: String { place.run }
    /// The files in which a process that uses it may have locks of its own (fcntl(2), F_SETLK).
    public var lockedFiles: [String] { place.locked }

    private let place: StoreDirectory
    private let fileKey: FileKey
    private let survivesPowerLoss: Bool
    let seal: SipHash
    private let connection: Lock<Database>

    /// Opens the store in `directory`, an absolute path. With `create`, directory and database are made when missing.
    ///
    /// A store that is damaged, newer, of somebody else or not readable is an error, and is left as it is; so is one that is
    /// missing without `create` (`.notFound`).
    ///
    /// `survivesPowerLoss` false: what this value writes survives the end of any process, and is not waited for until it is on the disk, but for what takes something away.
    public convenience init(directory: String, create: Bool, survivesPowerLoss: Bool = true) throws(GrantError) {
        try self.init(directory: directory, create: create, schema: .current, survivesPowerLoss: survivesPowerLoss)
        if !survivesPowerLoss {
            try connection.withLock { (database: inout Database) throws(GrantError) in try database.setWaitsForDisk(false) }
        }
    }

    /// Opens a store that is there to look at it: nothing can be written by this value. One of an older version is an error (`.unsupported`), because it
    /// would have to be migrated first.
    public convenience init(inspecting directory: String) throws(GrantError) {
        try self.init(directory: directory, create: false, schema: .current, isReadOnly: true)
    }

    init(
        directory: String, create: Bool, schema: Schema, survivesPowerLoss: Bool = true, isReadOnly: Bool = false
    ) throws(GrantError) {
        self.survivesPowerLoss = survivesPowerLoss
        place = try StoreDirectory(directory, create: create)
        self.directory = place.path
        if create { try place.create(schema) }
        fileKey = try place.databaseIdentity()
        try place.checkFiles()
        seal = try place.readKey()
        let database = try Database(path: place.database, create: false, isReadOnly: isReadOnly)
        if isReadOnly { try schema.inspect(database) } else { try schema.prepare(database) }
        connection = Lock(database)
        // Between the look and the opening the file may have been exchanged.
        try checkFile()
    }

    /// Changes when another connection, of this process or another, has changed the store since the last call.
    ///
    /// Throws also when the database file was removed or replaced: its user must then refuse everything.
    public func dataVersion() throws(GrantError) -> Int64 {
        try read { (database) throws(GrantError) in try database.integer("PRAGMA data_version") }
    }

    /// Size and time of the database file itself: they change when a checkpoint has written to it, and when somebody else has. An
    /// open connection trusts its own memory, so only opening the store anew tells which of the two it was.
    public func fileStamp() throws(GrantError) -> Int64 { try place.databaseStamp() }

    func read<Result>(_ body: (Database) throws(GrantError) -> Result) throws(GrantError) -> Result {
        try checkFile()
        return try connection.withLock { (database: inout Database) throws(GrantError) in try body(database) }
    }

    /// One transaction. `withdraws`: it takes something away, so the write-ahead log is emptied into the database at once.
    /// SQLite drops a log from its first damaged page on without a word, and takes what stands before that page for the truth:
    /// a single flipped byte there would bring a revoked grant back. Where only what lives as long as a command is written, it is enough that the log is on the disk.
    func write<Result>(withdraws: Bool = false, _ body: (Database) throws(GrantError) -> Result) throws(GrantError) -> Result {
        try checkFile()
        let (result, noted) = try connection.withLock { (database: inout Database) throws(GrantError) in
            let connection = database
            connection.noted = []
            let isExtra = withdraws && !survivesPowerLoss
            if isExtra { try connection.setWaitsForDisk(true) }
            defer { if isExtra { try? connection.setWaitsForDisk(false) } }
            let result = try connection.transaction { () throws(GrantError) in try body(connection) }
            if withdraws, survivesPowerLoss { connection.emptyLog() }
            return (result, connection.noted)
        }
        if !noted.isEmpty { note(noted) }
        return result
    }

    private func checkFile() throws(GrantError) {
        if try place.databaseIdentity() != fileKey {
            throw StoreFailure.unavailable(directory, "its database was replaced while it was in use", advice: "start again")
        }
    }

    static var now: Instant { Instant(nanoseconds: Clock.realtime) }
}
