import GrantModel

extension GrantStore {
    /// Appends an entry. The store assigns its number. Time and actor are the entry's own.
    public func append(_ entry: LogEntry) throws(GrantError) {
        try write { (database) throws(GrantError) in
            try add(entry, to: database)
            if entry.event == .released { database.pendingSystemLog.append(entry) }
        }
    }

    /// Appends an entry with the current time.
    public func append(
        _ event: LogEvent, view: ViewName? = nil, grant: GrantID? = nil, name: GrantName? = nil, detail: String = "",
        path: [UInt8]? = nil, count: Int64? = nil, by actor: Actor
    ) throws(GrantError) {
        try append(
            LogEntry(
                time: GrantStore.now, event: event, actor: actor, view: view, grant: grant, name: name, detail: detail, path: path,
                count: count))
    }

    /// Returns up to `limit` entries with a number above `after`, oldest first.
    public func log(after number: Int64, limit: Int) throws(GrantError) -> [LogEntry] {
        try entries(where: "number > ?", [.integer(number)], limit: limit)
    }

    /// Returns up to `limit` entries for which the condition holds, oldest first.
    func entries(where condition: String, _ values: [Value], limit: Int = .max) throws(GrantError) -> [LogEntry] {
        try read { (database) throws(GrantError) in
            var result: [LogEntry] = []
            try database.query(
                """
                SELECT number, time, event, uid, pid, program, view, grant_id, name, detail, path, error, login_uid, new_path, access, count
                FROM log WHERE \(condition) ORDER BY number LIMIT ?
                """, values + [.integer(Int64(clamping: limit))]
            ) { (row) throws(GrantError) in
                guard let event = LogEvent(rawValue: row.text(2)) else {
                    throw StoreFailure.damaged(database.path, "entry \(row.integer(0)) of the log makes no sense")
                }
                let actor = Actor(
                    uid: UInt32(truncatingIfNeeded: row.integer(3)), pid: Int32(truncatingIfNeeded: row.integer(4)), program: row.text(5),
                    loginUID: row.optionalInteger(12).map { UInt32(truncatingIfNeeded: $0) })
                result.append(
                    LogEntry(
                        number: row.integer(0), time: Instant(nanoseconds: row.integer(1)), event: event, actor: actor,
                        view: try? ViewName(row.text(6)), grant: GrantID(bytes: row.blob(7)), name: try? GrantName(entry: row.blob(8)),
                        detail: row.text(9), path: row.isNull(10) ? nil : row.blob(10),
                        error: row.optionalInteger(11).map { Int32(truncatingIfNeeded: $0) },
                        newPath: row.isNull(13) ? nil : row.blob(13),
                        access: row.isNull(14) ? nil : OpenAccess(rawValue: row.text(14)), count: row.optionalInteger(15)))
            }
            return result
        }
    }

    /// Returns the number of the newest entry, or 0 if there is none.
    public func lastLogNumber() throws(GrantError) -> Int64 {
        try read { (database) throws(GrantError) in try database.integer("SELECT ifnull(max(number), 0) FROM log") }
    }

    /// Returns the number of the oldest entry about changes of grants, or 0 if there is none. Older ones may have been dropped.
    package func firstLogNumber() throws(GrantError) -> Int64 {
        try read { (database) throws(GrantError) in
            try database.integer("SELECT ifnull(min(number), 0) FROM log WHERE kept = \(LogPartition.administration.rawValue)")
        }
    }

    /// Whether a grant was ever made in this view, as far as the log goes back.
    public func hasGranted(in view: ViewName) throws(GrantError) -> Bool {
        try read { (database) throws(GrantError) in
            var hasGranted = false
            try database.query(
                "SELECT 1 FROM log WHERE kept = ? AND event = ? AND view = ? LIMIT 1",
                [.integer(LogPartition.administration.rawValue), .text(LogEvent.granted.rawValue), .blob(Array(view.description.utf8))]
            ) { _ throws(GrantError) in hasGranted = true }
            return hasGranted
        }
    }

    /// Records a change of a grant. The system's log gets it once it is on disk.
    /// Returns the command that the view was last mounted for, or nil if that was for none, or the log no longer has it.
    package func command(of view: ViewName) throws(GrantError) -> String? {
        try read { (database) throws(GrantError) in
            var command: String?
            try database.query(
                "SELECT detail FROM log WHERE kept = ? AND event = ? AND view = ? ORDER BY number DESC LIMIT 1",
                [
                    .integer(LogPartition.administration.rawValue), .text(LogEvent.mounted.rawValue), .blob(Array(view.description.utf8)),
                ]
            ) { (row) throws(GrantError) in command = RunEntries.command(of: view, in: row.text(0)) }
            return command
        }
    }

    func log(_ event: LogEvent, _ grant: Grant, _ actor: Actor, _ detail: String = "", in database: Database) throws(GrantError) {
        let entry = LogEntry(
            time: GrantStore.now, event: event, actor: actor, view: grant.view, grant: grant.id, name: grant.name, detail: detail)
        try add(entry, to: database)
        if event.changesRights { database.pendingSystemLog.append(entry) }
    }

    func add(_ entry: LogEntry, to database: Database) throws(GrantError) {
        try database.query(
            """
            INSERT INTO log
                (time, event, uid, pid, program, view, grant_id, name, detail, path, error, login_uid, new_path, access, count)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                .integer(entry.time.nanoseconds), .text(entry.event.rawValue), .integer(Int64(truncatingIfNeeded: entry.actor.uid)),
                .integer(Int64(truncatingIfNeeded: entry.actor.pid)), .text(entry.actor.program),
                Value(entry.view.map { Array($0.description.utf8) }),
                Value(entry.grant?.bytes), Value(entry.name?.bytes), .text(entry.detail), Value(entry.path),
                Value(entry.error.map { Int64(truncatingIfNeeded: $0) }),
                Value(entry.actor.loginUID.map { Int64(truncatingIfNeeded: $0) }), Value(entry.newPath),
                entry.access.map { .text($0.rawValue) } ?? .null, Value(entry.count),
            ])
        let partition = entry.event.partition
        if partition != .audit, database.lastRow % 512 == 0 { try trim(partition, by: entry.actor, in: database) }
    }
}
