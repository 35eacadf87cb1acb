import CGrantSQLite
import GrantModel

/// One SQLite connection. Not safe to share: `GrantStore` keeps it behind its lock.
final class Database {
    private let handle: OpaquePointer
    let path: String
    /// What the transaction under way has to say in the system's log when it is on disk.
    var noted: [LogEntry] = []
    /// How other connections are waited for. SQLite has its address.
    private let waiting: StoreWaiting

    /// Opens `path`, which has no symbolic link in it and exists unless `create`.
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
        let waiting = StoreWaiting(path: path)
        sqlite3_busy_handler(handle, StoreWaiting.handler, Unmanaged.passUnretained(waiting).toOpaque())
        self.handle = handle
        self.path = path
        self.waiting = waiting
    }

    deinit { sqlite3_close_v2(handle) }

    /// Copies the write-ahead log into the database and truncates it. Best effort: what it holds is durable already, and a
    /// reader that is under way for longer than a quarter of a second is not waited for.
    func emptyLog() {
        waiting.withLimit(250_000_000) { _ = sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil) }
    }

    /// Whether a transaction has ended when the disk has it, or when the kernel has. In a write-ahead log the disk has all before it as well then.
    func setWaitsForDisk(_ waits: Bool) throws(GrantError) { try execute("PRAGMA synchronous = \(waits ? "FULL" : "NORMAL")") }

    /// Runs statements that give no rows.
    func execute(_ sql: String) throws(GrantError) {
        try check(sqlite3_exec(handle, sql, nil, nil, nil))
    }

    /// Runs one statement with its parameters, calling `row` for each row.
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

    /// The first column of the first row.
    func integer(_ sql: String) throws(GrantError) -> Int64 {
        var value: Int64?
        try query(sql) { (row) throws(GrantError) in value = value ?? row.integer(0) }
        guard let value else { throw StoreFailure.damaged(path, "no answer to “\(sql)”") }
        return value
    }

    /// How many rows the last statement changed.
    var changes: Int { Int(truncatingIfNeeded: sqlite3_changes(handle)) }

    /// The number of the row that was inserted last.
    var lastRow: Int64 { sqlite3_last_insert_rowid(handle) }

    /// All or nothing: what `body` did is on disk when this returns, and undone when it throws.
    func transaction<Result>(_ body: () throws(GrantError) -> Result) throws(GrantError) -> Result {
        try execute("BEGIN IMMEDIATE")
        do {
            let result = try body()
            try execute("COMMIT")
            return result
        } catch {
            // Some errors roll back by themselves; a second ROLLBACK then only says so.
            if sqlite3_get_autocommit(handle) == 0 { try? execute("ROLLBACK") }
            throw error
        }
    }

    private func check(_ result: Int32) throws(GrantError) {
        if result != SQLITE_OK { throw failure(result) }
    }

    private func failure(_ result: Int32) -> GrantError { StoreFailure.error(result: result, handle: handle, path: path) }
}

/// What a statement's parameter can be.
enum Value {
    case integer(Int64)
    case text(String)
    case blob([UInt8])
    case null

    init(_ value: Int64?) { self = value.map { .integer($0) } ?? .null }
    init(_ value: [UInt8]?) { self = value.map { .blob($0) } ?? .null }
}

/// A prepared statement, finalised when this value ends.
struct Statement: ~Copyable {
    private let handle: OpaquePointer

    init(owning handle: OpaquePointer) { self.handle = handle }

    deinit { sqlite3_finalize(handle) }

    /// SQLite copies what it is given.
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
