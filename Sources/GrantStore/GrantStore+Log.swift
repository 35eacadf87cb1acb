import GrantModel

extension GrantStore {
    /// Adds an entry; its number is given by the store, its time and actor are the entry's own.
    public func append(_ entry: LogEntry) throws(GrantError) {
        try write { (database) throws(GrantError) in try add(entry, to: database) }
    }

    /// Adds openings, all or none, and forgets older ones but for about `limit`: a sixteenth more, at the most.
    public func append(_ openings: [LogEntry], keeping limit: Int) throws(GrantError) {
        try write { (database) throws(GrantError) in
            let before = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            for entry in openings { try add(entry, to: database) }
            let after = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            let step = max(16, Int64(clamping: limit) / 16)
            if before / step != after / step { try trim(.openings, to: limit, in: database) }
        }
    }

    /// Adds an entry that happens now.
    public func append(
        _ event: LogEvent, view: ViewName? = nil, grant: GrantID? = nil, name: GrantName? = nil, detail: String = "", by actor: Actor
    ) throws(GrantError) {
        try append(LogEntry(time: GrantStore.now, event: event, actor: actor, view: view, grant: grant, name: name, detail: detail))
    }

    /// The entries with a number above `after`, oldest first, `limit` at most.
    public func log(after number: Int64, limit: Int) throws(GrantError) -> [LogEntry] {
        try read { (database) throws(GrantError) in
            var result: [LogEntry] = []
            try database.query(
                """
                SELECT number, time, event, uid, pid, program, view, grant_id, name, detail, path, error FROM log
                WHERE number > ? ORDER BY number LIMIT ?
                """, [.integer(number), .integer(Int64(clamping: limit))]
            ) { (row) throws(GrantError) in
                guard let event = LogEvent(rawValue: row.text(2)) else {
                    throw StoreFailure.damaged(database.path, "entry \(row.integer(0)) of the log makes no sense")
                }
                let actor = Actor(
                    uid: UInt32(truncatingIfNeeded: row.integer(3)), pid: Int32(truncatingIfNeeded: row.integer(4)), program: row.text(5))
                result.append(
                    LogEntry(
                        number: row.integer(0), time: Instant(nanoseconds: row.integer(1)), event: event, actor: actor,
                        view: try? ViewName(row.text(6)), grant: GrantID(bytes: row.blob(7)), name: try? GrantName(entry: row.blob(8)),
                        detail: row.text(9), path: row.isNull(10) ? nil : row.blob(10),
                        error: row.optionalInteger(11).map { Int32(truncatingIfNeeded: $0) }))
            }
            return result
        }
    }

    /// The number of the newest entry; 0 when there is none.
    public func lastLogNumber() throws(GrantError) -> Int64 {
        try read { (database) throws(GrantError) in try database.integer("SELECT ifnull(max(number), 0) FROM log") }
    }

    func log(_ event: LogEvent, _ grant: Grant, _ actor: Actor, _ detail: String = "", in database: Database) throws(GrantError) {
        let entry = LogEntry(
            time: GrantStore.now, event: event, actor: actor, view: grant.view, grant: grant.id, name: grant.name, detail: detail)
        try add(entry, to: database)
    }

    /// As many entries are kept, besides openings.
    static let keptEntries = 100_000

    private enum Kept: String {
        case openings = "event = 'opened'"
        case others = "event <> 'opened'"
    }

    /// Forgets the oldest of a kind.
    private func trim(_ kept: Kept, to limit: Int, in database: Database) throws(GrantError) {
        // Numbers are never used twice, so there are no more entries than this.
        if try database.integer("SELECT ifnull(max(number) - min(number), 0) FROM log") < Int64(clamping: limit) { return }
        try database.query(
            """
            DELETE FROM log WHERE \(kept.rawValue) AND number <=
                (SELECT number FROM log WHERE \(kept.rawValue) ORDER BY number DESC LIMIT 1 OFFSET ?)
            """, [.integer(Int64(clamping: limit))])
    }

    private func add(_ entry: LogEntry, to database: Database) throws(GrantError) {
        try database.query(
            """
            INSERT INTO log (time, event, uid, pid, program, view, grant_id, name, detail, path, error)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                .integer(entry.time.nanoseconds), .text(entry.event.rawValue), .integer(Int64(truncatingIfNeeded: entry.actor.uid)),
                .integer(Int64(truncatingIfNeeded: entry.actor.pid)), .text(entry.actor.program),
                Value(entry.view.map { Array($0.description.utf8) }),
                Value(entry.grant?.bytes), Value(entry.name?.bytes), .text(entry.detail), Value(entry.path),
                Value(entry.error.map { Int64(truncatingIfNeeded: $0) }),
            ])
        // Openings have a bound of their own, so that whoever opens much cannot push anything else out.
        if entry.event != .opened, database.lastRow % 512 == 0 {
            try trim(.others, to: GrantStore.keptEntries, in: database)
        }
    }
}
