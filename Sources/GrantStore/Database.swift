import CGrantSQLite
import GrantModel

/// One SQLite connection. Not thread-safe: `GrantStore` protects it by its lock.
final class Database {
    private let handle: OpaquePointer
    let path: String
    /// Entries for the system's log, written when the current transaction is on disk.
    var pendingSystemLog: [LogEntry] = []
    /// SQLite has its address as context.
    private let busyHandler: StoreBusyHandler

    /// Opens `path`, which has no symbolic link in it. It must exist, unless `create`.
    init(path: String, create: Bool, isReadOnly: Bool = false) throws(GrantError) {
        var handle: OpaquePointer?
        let flags =
            (isReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
            | (create ? SQLITE_OPEN_CREATE : 0)
        let result = sqlite3_open_v2(path, &handle, flags, nil)
        guard let handle, result == SQLITE_OK else {
            let error = StoreFailure.error(result: result, handle: handle, path: path)
            sqlite3_close_v2(handle)
            throw error
        }
        sqlite3_extended_result_codes(handle, 1)
        let busyHandler = StoreBusyHandler(path: path)
        sqlite3_busy_handler(handle, StoreBusyHandler.handler, Unmanaged.passUnretained(busyHandler).toOpaque())
        self.handle = handle
        self.path = path
        self.busyHandler = busyHandler
    }

    deinit { sqlite3_close_v2(handle) }

    /// Checkpoints the write-ahead log into the database and truncates it.
    ///
    /// Best effort: its contents are durable anyway, and it waits at most a quarter of a second for
    /// readers.
    func checkpoint() {
        busyHandler.withLimit(250_000_000) { _ = sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil) }
    }

    /// Sets whether a transaction waits for the disk, or only for the kernel.
    ///
    /// In a write-ahead log, waiting once makes everything before durable too.
    func setWaitsForDisk(_ waits: Bool) throws(GrantError) { try execute("PRAGMA synchronous = \(waits ? "FULL" : "NORMAL")") }

    /// Runs statements that return no rows.
    func execute(_ sql: String) throws(GrantError) {
        try check(sqlite3_exec(handle, sql, nil, nil, nil))
    }

    /// Runs one statement with its parameters and calls `row` for each row.
    func query(
        _ sql: String, _ parameters: [Value] = [], row: (borrowing Statement) throws(GrantError) -> Void = { (_) throws(GrantError) in }
    ) throws(GrantError) {
        var raw: OpaquePointer?
        try check(sqlite3_prepare_v2(handle, sql, -1, &raw, nil))
        guard let raw else { return }
        let statement = Statement(owning: raw)
        for (index, parameter) in parameters.enumerated() {
            try check(statement.bind(parameter, at: Int32(truncatingIfNeeded: index + 1)))
        }
        while true {
            let result = statement.step()
            if result == SQLITE_DONE { return }
            guard result == SQLITE_ROW else { throw failure(result) }
            try row(statement)
        }
    }

    /// Returns the first column of the first row.
    func integer(_ sql: String) throws(GrantError) -> Int64 {
        var value: Int64?
        try query(sql) { (row) throws(GrantError) in value = value ?? row.integer(0) }
        guard let value else { throw StoreFailure.damaged(path, "no answer to “\(sql)”") }
        return value
    }

    /// The number of rows that the last statement changed.
    var changes: Int { Int(truncatingIfNeeded: sqlite3_changes(handle)) }

    /// The number of the last inserted row.
    var lastRow: Int64 { sqlite3_last_insert_rowid(handle) }

    /// Runs `body` in a transaction: on disk when this returns, rolled back when it throws.
    func transaction<Result>(_ body: () throws(GrantError) -> Result) throws(GrantError) -> Result {
        try execute("BEGIN IMMEDIATE")
        do {
            let result = try body()
            try execute("COMMIT")
            return result
        } catch {
            // Some errors roll back by themselves. Another ROLLBACK would only fail.
            if sqlite3_get_autocommit(handle) == 0 { try? execute("ROLLBACK") }
            throw error
        }
    }

    private func check(_ result: Int32) throws(GrantError) {
        if result != SQLITE_OK { throw failure(result) }
    }

    private func failure(_ result: Int32) -> GrantError { StoreFailure.error(result: result, handle: handle, path: path) }
}

/// A parameter of a statement.
enum Value {
    case integer(Int64)
    case text(String)
    case blob([UInt8])
    case null

    init(_ value: Int64?) { self = value.map { .integer($0) } ?? .null }
    init(_ value: [UInt8]?) { self = value.map { .blob($0) } ?? .null }
}

/// A prepared statement, finalised at the end of its lifetime.
struct Statement: ~Copyable {
    private let handle: OpaquePointer

    init(owning handle: OpaquePointer) { self.handle = handle }

    deinit { sqlite3_finalize(handle) }

    /// Binds a parameter. SQLite makes a copy.
    func bind(_ value: Value, at index: Int32) -> Int32 {
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        switch value {
        case .integer(let number): return sqlite3_bind_int64(handle, index, number)
        case .text(let text): return sqlite3_bind_text(handle, index, text, -1, copied)
        case .blob(let bytes) where bytes.isEmpty: return sqlite3_bind_zeroblob(handle, index, 0)
        case .blob(let bytes): return sqlite3_bind_blob64(handle, index, bytes, UInt64(truncatingIfNeeded: bytes.count), copied)
        case .null: return sqlite3_bind_null(handle, index)
        }
    }

    func step() -> Int32 { sqlite3_step(handle) }

    func isNull(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_NULL }
    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }
    func optionalInteger(_ column: Int32) -> Int64? { isNull(column) ? nil : integer(column) }

    func blob(_ column: Int32) -> [UInt8] {
        guard let start = sqlite3_column_blob(handle, column) else { return [] }
        return Array(UnsafeRawBufferPointer(start: start, count: max(0, Int(truncatingIfNeeded: sqlite3_column_bytes(handle, column)))))
    }

    func text(_ column: Int32) -> String { String(decoding: blob(column), as: UTF8.self) }
}
