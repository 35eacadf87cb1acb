import GrantModel
import GrantStore
import GrantSystem

/// Which entries of the log are asked for.
struct LogFilter {
    /// As it was typed: a name, an id, or the beginning of an id. Grants that were removed are only in the log, so nothing else says what it means.
    let grant: [UInt8]?
    let since: Instant?

    /// `.usage` for a time that is none.
    init(_ arguments: ParsedArguments) throws(GrantError) {
        grant = arguments.bytes("grant")
        if let text = try arguments.text("since") {
            since = try Expiry.parsePast(text, now: Instant(nanoseconds: Clock.realtime))
        } else {
            since = nil
        }
    }

    func takes(_ entry: LogEntry) -> Bool {
        if let since, entry.time < since { return false }
        return isOfGrant(entry)
    }

    /// Whether it is of the grant that was asked for, whenever it was; of every grant, when none was.
    func isOfGrant(_ entry: LogEntry) -> Bool {
        guard let grant else { return true }
        if entry.name?.bytes == grant { return true }
        return grant.count >= 8 && entry.grant.map { Array($0.description.utf8).starts(with: grant) } ?? false
    }
}
