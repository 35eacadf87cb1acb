import GrantModel

// What programs do through mounts with `-o audit`.
extension GrantStore {
    /// Of one grant, entries that were never written down.
    public struct Unwritten: Sendable {
        public let view: ViewName
        public let grant: GrantID?
        public let name: GrantName?
        public let count: Int64

        public init(view: ViewName, grant: GrantID?, name: GrantName?, count: Int64) {
            (self.view, self.grant, self.name, self.count) = (view, grant, name, count)
        }
    }

    /// Adds entries, says of earlier ones how they ended, and counts what was not written down, all or none. Forgets older ones but for about `limit`: a sixteenth
    /// more, at the most. Gives the new entries' numbers, in order. `actor`: who keeps the log.
    public func append(
        _ uses: [LogEntry], results: [(number: Int64, error: Int32)] = [], unwritten: [Unwritten] = [], keeping limit: Int, by actor: Actor
    ) throws(GrantError) -> [Int64] {
        try write { (database) throws(GrantError) in
            let before = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            for (number, error) in results {
                try database.query(
                    "UPDATE log SET error = ? WHERE number = ? AND error IS NULL",
                    [.integer(Int64(truncatingIfNeeded: error)), .integer(number)])
            }
            var numbers: [Int64] = []
            for entry in uses {
                try add(entry, to: database)
                numbers.append(database.lastRow)
            }
            for lost in unwritten {
                try noteForgotten(lost.count, of: lost.grant, lost.view, lost.name, actor, in: database)
            }
            let after = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            let step = max(16, Int64(clamping: limit) / 16)
            if before / step != after / step { try trim(.uses, to: limit, by: actor, in: database) }
            return numbers
        }
    }
}
