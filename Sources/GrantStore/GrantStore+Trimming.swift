import GrantModel

// The log has bounds. What anybody can fill by what he does is shared: he who has most loses his oldest entries, so that nobody's are pushed out by another.
extension GrantStore {
    /// As many entries are kept of each kind, besides what `-o audit` writes.
    static let keptEntries = 100_000

    /// More users of one grant than this share as one.
    private static let mostUsers = 1024

    func trim(_ kept: Kept, to limit: Int = keptEntries, by actor: Actor, in database: Database) throws(GrantError) {
        // Numbers are never used twice, so there are no more entries than this.
        if try database.integer("SELECT ifnull(max(number) - min(number), 0) FROM log") < Int64(clamping: limit) { return }
        if kept != .acts { return try trimShares(kept, to: limit, actor, in: database) }
        try database.query(
            """
            DELETE FROM log WHERE kept = ?1 AND number <= (SELECT number FROM log WHERE kept = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
            """, [.integer(kept.rawValue), .integer(Int64(clamping: limit))])
    }

    /// Each grant has the same share, what one does not need is the others'; so has each user of a grant.
    private func trimShares(_ kept: Kept, to limit: Int, _ actor: Actor, in database: Database) throws(GrantError) {
        var grants: [(grant: [UInt8]?, count: Int)] = []
        try database.query("SELECT grant_id, count(*) FROM log WHERE kept = ? GROUP BY grant_id", [.integer(kept.rawValue)]) {
            (row) throws(GrantError) in
            grants.append((row.isNull(0) ? nil : row.blob(0), Int(clamping: row.integer(1))))
        }
        let share = GrantStore.share(of: grants.map(\.count), in: limit)
        for (grant, count) in grants where count > share {
            let forgotten = try trimUsers(kept, of: grant, to: share, in: database)
            if kept == .uses { try noteForgotten(forgotten, of: grant, kept, actor, in: database) }
        }
    }

    /// How many entries were forgotten.
    private func trimUsers(_ kept: Kept, of grant: [UInt8]?, to share: Int, in database: Database) throws(GrantError) -> Int64 {
        var users: [(uid: Int64, count: Int)] = []
        try database.query(
            "SELECT uid, count(*) FROM log WHERE kept = ? AND grant_id IS ? GROUP BY uid", [.integer(kept.rawValue), Value(grant)]
        ) { (row) throws(GrantError) in users.append((row.integer(0), Int(clamping: row.integer(1)))) }
        if users.count > GrantStore.mostUsers {
            try database.query(
                """
                DELETE FROM log WHERE kept = ?1 AND grant_id IS ?2 AND number <=
                    (SELECT number FROM log WHERE kept = ?1 AND grant_id IS ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3)
                """, [.integer(kept.rawValue), Value(grant), .integer(Int64(clamping: share))])
            return Int64(clamping: database.changes)
        }
        var forgotten: Int64 = 0
        let own = GrantStore.share(of: users.map(\.count), in: share)
        for (uid, count) in users where count > own {
            try database.query(
                """
                DELETE FROM log WHERE kept = ?1 AND grant_id IS ?2 AND uid = ?3 AND number <=
                    (SELECT number FROM log WHERE kept = ?1 AND grant_id IS ?2 AND uid = ?3 ORDER BY number DESC LIMIT 1 OFFSET ?4)
                """, [.integer(kept.rawValue), Value(grant), .integer(uid), .integer(Int64(clamping: own))])
            forgotten += Int64(clamping: database.changes)
        }
        return forgotten
    }

    /// The most that one may have so that all together have no more than `limit`, and who has less keeps it all. One at the least.
    static func share(of counts: [Int], in limit: Int) -> Int {
        var rest = limit
        for (place, count) in counts.sorted().enumerated() {
            let equal = rest / (counts.count - place)
            if count > equal { return max(1, equal) }
            rest -= count
        }
        return .max
    }

    /// Keeps count of what was forgotten of a grant, in one entry that takes the place of the last.
    private func noteForgotten(
        _ count: Int64, of grant: [UInt8]?, _ kept: Kept, _ actor: Actor, in database: Database
    ) throws(GrantError) {
        var view: ViewName?
        var name: GrantName?
        try database.query(
            "SELECT view, name FROM log WHERE kept = ? AND grant_id IS ? LIMIT 1", [.integer(kept.rawValue), Value(grant)]
        ) { (row) throws(GrantError) in (view, name) = (try? ViewName(row.text(0)), try? GrantName(entry: row.blob(1))) }
        try noteForgotten(count, of: grant.flatMap { GrantID(bytes: $0) }, view, name, actor, in: database)
    }

    func noteForgotten(
        _ count: Int64, of grant: GrantID?, _ view: ViewName?, _ name: GrantName?, _ actor: Actor, in database: Database
    ) throws(GrantError) {
        let (kept, event) = (Value.integer(Kept.acts.rawValue), Value.text(LogEvent.forgotten.rawValue))
        var total = count
        try database.query("SELECT count FROM log WHERE kept = ? AND grant_id IS ? AND event = ?", [kept, Value(grant?.bytes), event]) {
            (row) throws(GrantError) in total = total.addingReportingOverflow(row.integer(0)).partialValue
        }
        try database.query("DELETE FROM log WHERE kept = ? AND grant_id IS ? AND event = ?", [kept, Value(grant?.bytes), event])
        let detail = "\(total == 1 ? "1 entry" : "\(total) entries") of what was done through mounts"
        try add(
            LogEntry(
                time: GrantStore.now, event: .forgotten, actor: actor, view: view, grant: grant, name: name, detail: detail, count: total),
            to: database)
    }
}
