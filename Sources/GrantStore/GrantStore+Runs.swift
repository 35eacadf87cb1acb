import GrantModel

// What programs of `grantfs run` wanted and did not get. The entries of all runs have one bound, and push out no others.
extension GrantStore {
    /// How many entries of this kind the log keeps.
    package static let mostOfRuns: Int64 = 20_000

    /// Appends entries of `wanted` and `hostRefused` in one transaction. The oldest of these kinds are dropped.
    package func appendOfRun(_ entries: [LogEntry], keeping limit: Int64 = mostOfRuns) throws(GrantError) {
        if entries.isEmpty { return }
        try write { (database) throws(GrantError) in
            for entry in entries { try add(entry, to: database) }
            let kinds = [LogEvent.wanted, .hostRefused].map { Value.text($0.rawValue) }
            // The condition on `grant_id` makes the index `log_shares` of use.
            let own = "kept = ?1 AND grant_id IS NULL AND event IN (?2, ?3)"
            try database.query(
                """
                DELETE FROM log WHERE \(own) AND number <=
                    (SELECT number FROM log WHERE \(own) ORDER BY number DESC LIMIT 1 OFFSET ?4)
                """, [.integer(LogPartition.audit.rawValue)] + kinds + [.integer(limit)])
        }
    }

    /// Returns the views of runs that the log still has, in the order of their last entries.
    package func viewsOfRuns() throws(GrantError) -> [ViewName] {
        let events = [LogEvent.mounted, .wanted, .hostRefused]
        return try read { (database) throws(GrantError) in
            var views: [ViewName] = []
            try database.query(
                """
                SELECT view FROM log WHERE substr(view, 1, 4) = CAST('run-' AS BLOB) AND event IN (?, ?, ?)
                GROUP BY view ORDER BY max(number)
                """, events.map { .text($0.rawValue) }
            ) { (row) throws(GrantError) in if let view = try? ViewName(row.text(0)) { views.append(view) } }
            return views
        }
    }

    /// Returns the entries of a view that were written for its grants and its program, oldest first.
    package func log(of view: ViewName, events: [LogEvent]) throws(GrantError) -> [LogEntry] {
        let places = events.map { _ in "?" }.joined(separator: ", ")
        return try entries(
            where: "view = ? AND event IN (\(places))",
            [.blob(Array(view.description.utf8))] + events.map { .text($0.rawValue) })
    }
}
