import GrantModel
import GrantStore
import LinuxFS

/// Which entries of the log are asked for.
struct LogFilter {
    /// A name, an id, or the beginning of an id. Grants that were removed are only in the log, so nothing else says what it means.
    private let grant: [UInt8]?
    private let since: Instant?

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
        guard let grant else { return true }
        if entry.name?.bytes == grant { return true }
        return grant.count >= 8 && entry.grant.map { Array($0.description.utf8).starts(with: grant) } ?? false
    }
}
