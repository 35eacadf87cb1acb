import GrantModel

// The log of operations through mounts with `-o audit`.
extension GrantStore {
    /// A number of entries of one grant that were dropped before they were written.
    public struct DroppedEntries: Sendable {
        public let view: ViewName
        public let grant: GrantID?
        public let name: GrantName?
        public let count: Int64

        public init(view: ViewName, grant: GrantID?, name: GrantName?, count: Int64) {
            (self.view, self.grant, self.name, self.count) = (view, grant, name, count)
        }
    }

    /// Appends entries, sets results of earlier ones, and counts dropped ones.
    ///
    /// All in one transaction. It keeps about `limit` entries, at most a sixteenth more.
    ///
    /// - Parameter actor: The process that writes the log.
    /// - Returns: The numbers of the new entries, in order.
    public func append(
        _ entries: [LogEntry], results: [(number: Int64, error: Int32)] = [], dropped: [DroppedEntries] = [], keeping limit: Int,
        by actor: Actor
    ) throws(GrantError) -> [Int64] {
        try write { (database) throws(GrantError) in
            let before = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            for (number, error) in results {
                try database.query(
                    "UPDATE log SET error = ? WHERE number = ? AND error IS NULL",
                    [.integer(Int64(truncatingIfNeeded: error)), .integer(number)])
            }
            var numbers: [Int64] = []
            for entry in entries {
                try add(entry, to: database)
                numbers.append(database.lastRow)
            }
            for group in dropped {
                try recordDropped(group.count, of: group.grant, group.view, group.name, actor, in: database)
            }
            let after = try database.integer("SELECT ifnull(max(number), 0) FROM log")
            let step = max(16, Int64(clamping: limit) / 16)
            if before / step != after / step { try trim(.audit, to: limit, by: actor, in: database) }
            return numbers
        }
    }
}
