import GrantModel
import GrantSystem
import Synchronization

/// The grants, the mounts and the log in one SQLite database that processes share.
///
/// A change is on disk when the function returns. A function that throws has changed nothing.
/// Thread-safe. A call may wait for others: ten seconds for one transaction, a minute in a queue of
/// them.
///
/// Locking: one lock around the connection, taken by every function, held during the SQL and
/// nothing else. Another one around the kept grants, held for an access.
public final class GrantStore: Sendable {
    /// Absolute and canonical.
    public let directory: String
    /// The directory of the control sockets, mode 0700.
    public var runDirectory: String { place.run }
    /// The files in which a process that uses the store may hold record locks (fcntl(2), F_SETLK).
    public var lockedFiles: [String] { place.locked }

    private let place: StoreDirectory
    private let fileKey: FileKey
    /// `fileStamp` before anything was read.
    package let openingStamp: Int64
    private let survivesPowerLoss: Bool
    let seal: SipHash
    private let connection: Lock<Database>
    /// How many transactions this connection has written: SQLite's data version does not count them.
    private let ownChanges = Atomic<Int>(0)
    private let keepsGrants = Atomic<Bool>(false)
    private let keptGrants = Lock<(stamp: ChangeStamp, grants: [Grant])?>(nil)

    /// Opens the store in `directory`.
    ///
    /// A store that is damaged, newer, owned by another user or unreadable is an error, and is not
    /// changed.
    ///
    /// - Parameters:
    ///   - directory: An absolute path.
    ///   - create: Makes a missing directory or database.
    ///   - survivesPowerLoss: Without it, writes survive the end of any process but do not wait for
    ///     the disk, except withdrawals.
    /// - Throws: `.notFound` for a missing store without `create`.
    public convenience init(directory: String, create: Bool, survivesPowerLoss: Bool = true) throws(GrantError) {
        try self.init(directory: directory, create: create, schema: .current, survivesPowerLoss: survivesPowerLoss)
        if !survivesPowerLoss {
            try connection.withLock { (database: inout Database) throws(GrantError) in try database.setWaitsForDisk(false) }
        }
    }

    /// Opens an existing store read-only.
    ///
    /// - Throws: `.unsupported` for an older version, which would have to be migrated.
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
        openingStamp = try place.databaseStamp()
        try place.checkFiles()
        seal = try place.readKey()
        let database = try Database(path: place.database, create: false, isReadOnly: isReadOnly)
        if isReadOnly { try schema.inspect(database) } else { try schema.prepare(database) }
        connection = Lock(database)
        // The file may have been exchanged between the check and the open.
        try checkFile()
    }

    /// Returns a number that changes when another connection has changed the store.
    ///
    /// The connection may be of this process or another. It counts since the last call.
    ///
    /// - Throws: Also if the database file was removed or replaced. The caller must then refuse
    ///   everything.
    public func dataVersion() throws(GrantError) -> Int64 {
        try read { (database) throws(GrantError) in try database.integer("PRAGMA data_version") }
    }

    /// Identifies what the store holds, as seen by this process.
    package struct ChangeStamp: Equatable, Sendable {
        let others: Int64
        let own: Int
    }

    /// Returns a stamp that is another one after each change, by this process or another. Throws as `dataVersion`.
    package func changeStamp() throws(GrantError) -> ChangeStamp {
        try read { (database) throws(GrantError) in
            ChangeStamp(others: try database.integer("PRAGMA data_version"), own: ownChanges.load(ordering: .acquiring))
        }
    }

    /// Makes `grants(view:)` keep the grants, for a process that asks again and again.
    ///
    /// They are read again after each change.
    package func keepGrants() { keepsGrants.store(true, ordering: .relaxed) }

    /// Returns the kept grants, read by `body` if the store has changed. nil if none are kept.
    func keptGrants(_ body: () throws(GrantError) -> [Grant]) throws(GrantError) -> [Grant]? {
        guard keepsGrants.load(ordering: .relaxed) else { return nil }
        // From before the look, so a change during it counts as one after it.
        let stamp = try changeStamp()
        if let kept = keptGrants.withLock({ $0 }), kept.stamp == stamp { return kept.grants }
        let grants = try body()
        keptGrants.withLock { $0 = (stamp, grants) }
        return grants
    }

    /// Returns a hash of the size and time of the database file.
    ///
    /// A checkpoint changes them, and so does any other writer. An open connection trusts its own
    /// cache, so only opening the store again tells which of the two it was.
    public func fileStamp() throws(GrantError) -> Int64 { try place.databaseStamp() }

    func read<Result>(_ body: (Database) throws(GrantError) -> Result) throws(GrantError) -> Result {
        try checkFile()
        return try connection.withLock { (database: inout Database) throws(GrantError) in try body(database) }
    }

    /// Runs one transaction.
    ///
    /// `withdraws`: it withdraws rights, so the write-ahead log is checkpointed immediately. SQLite
    /// silently drops a log from its first damaged page on and trusts the pages before it. So a
    /// single flipped byte there would restore a revoked grant. Without `survivesPowerLoss`, only
    /// data that lives as long as a command is written, and it is enough that the log is on disk.
    func write<Result>(withdraws: Bool = false, _ body: (Database) throws(GrantError) -> Result) throws(GrantError) -> Result {
        try checkFile()
        let (result, pendingSystemLog) = try connection.withLock { (database: inout Database) throws(GrantError) in
            let connection = database
            connection.pendingSystemLog = []
            let isExtra = withdraws && !survivesPowerLoss
            if isExtra { try connection.setWaitsForDisk(true) }
            defer { if isExtra { try? connection.setWaitsForDisk(false) } }
            defer { ownChanges.wrappingAdd(1, ordering: .releasing) }
            let result = try connection.transaction { () throws(GrantError) in try body(connection) }
            if withdraws, survivesPowerLoss { connection.checkpoint() }
            return (result, connection.pendingSystemLog)
        }
        if !pendingSystemLog.isEmpty { writeToSystemLog(pendingSystemLog) }
        return result
    }

    private func checkFile() throws(GrantError) {
        if try place.databaseIdentity() != fileKey {
            throw StoreFailure.unavailable(directory, "its database was replaced while it was in use", advice: "start again")
        }
    }

    static var now: Instant { Instant(nanoseconds: Clock.realtime) }
}
