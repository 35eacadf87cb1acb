import GrantModel

// The log is bounded. Grants and users share the part that users can fill: the oldest entries of
// those above their quota are dropped, so no user can push out another's entries.
extension GrantStore {
    /// The maximum of entries of each partition, except the partition of `-o audit`.
    static let entryLimit = 100_000

    /// Users of one grant beyond this number share one quota.
    private static let maxUsers = 1024

    func trim(_ partition: LogPartition, to limit: Int = entryLimit, by actor: Actor, in database: Database) throws(GrantError) {
        // Numbers are never reused, so the log has at most this many entries.
        if try database.integer("SELECT ifnull(max(number) - min(number), 0) FROM log") < Int64(clamping: limit) { return }
        if partition != .administration { return try trimByGrant(partition, to: limit, actor, in: database) }
        try database.query(
            """
            DELETE FROM log WHERE kept = ?1 AND number <= (SELECT number FROM log WHERE kept = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
            """, [.integer(partition.rawValue), .integer(Int64(clamping: limit))])
    }

    /// Trims a partition. Each grant has an equal quota, of which others may use the rest.
    ///
    /// The same holds for the users of a grant.
    private func trimByGrant(_ partition: LogPartition, to limit: Int, _ actor: Actor, in database: Database) throws(GrantError) {
        var grants: [(grant: [UInt8]?, count: Int)] = []
        try database.query("SELECT grant_id, count(*) FROM log WHERE kept = ? GROUP BY grant_id", [.integer(partition.rawValue)]) {
            (row) throws(GrantError) in
            grants.append((row.isNull(0) ? nil : row.blob(0), Int(clamping: row.integer(1))))
        }
        let share = GrantStore.share(of: grants.map(\.count), in: limit)
        for (grant, count) in grants where count > share {
            let forgotten = try trimByUser(partition, of: grant, to: share, in: database)
            if partition == .audit { try recordDropped(forgotten, of: grant, partition, actor, in: database) }
        }
    }

    /// Returns how many entries were dropped.
    private func trimByUser(_ partition: LogPartition, of grant: [UInt8]?, to share: Int, in database: Database) throws(GrantError) -> Int64
    {
        var users: [(uid: Int64, count: Int)] = []
        try database.query(
            "SELECT uid, count(*) FROM log WHERE kept = ? AND grant_id IS ? GROUP BY uid", [.integer(partition.rawValue), Value(grant)]
        ) { (row) throws(GrantError) in users.append((row.integer(0), Int(clamping: row.integer(1)))) }
        if users.count > GrantStore.maxUsers {
            try database.query(
                """
                DELETE FROM log WHERE kept = ?1 AND grant_id IS ?2 AND number <=
                    (SELECT number FROM log WHERE kept = ?1 AND grant_id IS ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3)
                """, [.integer(partition.rawValue), Value(grant), .integer(Int64(clamping: share))])
            return Int64(clamping: database.changes)
        }
        var forgotten: Int64 = 0
        let own = GrantStore.share(of: users.map(\.count), in: share)
        for (uid, count) in users where count > own {
            try database.query(
                """
                DELETE FROM log WHERE kept = ?1 AND grant_id IS ?2 AND uid = ?3 AND number <=
                    (SELECT number FROM log WHERE kept = ?1 AND grant_id IS ?2 AND uid = ?3 ORDER BY number DESC LIMIT 1 OFFSET ?4)
                """, [.integer(partition.rawValue), Value(grant), .integer(uid), .integer(Int64(clamping: own))])
            forgotten += Int64(clamping: database.changes)
        }
        return forgotten
    }

    /// Returns the largest quota, at least 1, with which all have at most `limit` entries.
    ///
    /// A user or grant below the quota keeps all entries.
    static func share(of counts: [Int], in limit: Int) -> Int {
        var rest = limit
        for (place, count) in counts.sorted().enumerated() {
            let equal = rest / (counts.count - place)
            if count > equal { return max(1, equal) }
            rest -= count
        }
        return .max
    }

    /// Records how many entries of a grant were dropped, in one entry that replaces the last.
    private func recordDropped(
        _ count: Int64, of grant: [UInt8]?, _ partition: LogPartition, _ actor: Actor, in database: Database
    ) throws(GrantError) {
        var view: ViewName?
        var name: GrantName?
        try database.query(
            "SELECT view, name FROM log WHERE kept = ? AND grant_id IS ? LIMIT 1", [.integer(partition.rawValue), Value(grant)]
        ) { (row) throws(GrantError) in (view, name) = (try? ViewName(row.text(0)), try? GrantName(entry: row.blob(1))) }
        try recordDropped(count, of: grant.flatMap { GrantID(bytes: $0) }, view, name, actor, in: database)
    }

    func recordDropped(
        _ count: Int64, of grant: GrantID?, _ view: ViewName?, _ name: GrantName?, _ actor: Actor, in database: Database
    ) throws(GrantError) {
        let (partition, event) = (Value.integer(LogPartition.administration.rawValue), Value.text(LogEvent.forgotten.rawValue))
        var total = count
        try database.query("SELECT count FROM log WHERE kept = ? AND grant_id IS ? AND event = ?", [partition, Value(grant?.bytes), event])
        {
            (row) throws(GrantError) in total = total.addingReportingOverflow(row.integer(0)).partialValue
        }
        try database.query("DELETE FROM log WHERE kept = ? AND grant_id IS ? AND event = ?", [partition, Value(grant?.bytes), event])
        let detail = "\(total == 1 ? "1 entry" : "\(total) entries") of operations through mounts"
        try add(
            LogEntry(
                time: GrantStore.now, event: .forgotten, actor: actor, view: view, grant: grant, name: name, detail: detail, count: total),
            to: database)
    }
}
