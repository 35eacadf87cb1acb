import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// Selects entries of the log.
package struct LogFilter {
    /// As typed: a name, an id, or a prefix of an id. Removed grants are only in the log, so it cannot be resolved otherwise.
    package let grant: [UInt8]?
    package let since: Instant?
    package let view: ViewName?
    /// The number of last entries to show, or nil for all.
    package let count: Int?

    /// Throws `.usage` for an invalid time.
    package init(_ arguments: ParsedArguments) throws(GrantError) {
        grant = arguments.bytes("grant")
        view = try arguments.view()
        count = try arguments.text("lines").map { (text) throws(GrantError) in
            guard let count = Int(text), count >= 0 else {
                throw GrantError(.usage, "invalid number of entries “\(text)”", advice: "use 0 or more")
            }
            return count
        }
        if let text = try arguments.text("since") {
            since = try Expiry.parsePast(text, now: Instant(nanoseconds: Clock.realtime))
        } else {
            since = nil
        }
    }

    package func takes(_ entry: LogEntry) -> Bool {
        if let since, entry.time < since { return false }
        if let view, entry.view != view { return false }
        return isOfGrant(entry)
    }

    /// The last of the selected entries.
    package func last<Entry>(_ entries: [Entry]) -> ArraySlice<Entry> { count.map { entries.suffix($0) } ?? entries[...] }

    /// Whether entries of other views or grants are left out.
    package var isOfSomeGrants: Bool { view != nil || grant != nil }

    /// Whether following begins with entries from before.
    package var wantsEarlier: Bool { since != nil || count != nil }

    /// Whether the entry is of the selected grant, at any time. It is always true if no grant was
    /// selected.
    package func isOfGrant(_ entry: LogEntry) -> Bool {
        isSelected(entry.name?.bytes, entry.grant?.description)
    }

    package func isOfGrant(_ recorded: Grant) -> Bool { isSelected(recorded.name.bytes, recorded.id.description) }

    /// Whether a grant of this name and id is selected.
    package func isSelected(_ name: [UInt8]?, _ id: String?) -> Bool {
        guard let grant else { return true }
        if name == grant { return true }
        return grant.count >= Selector.shortestPrefix && id.map { Array($0.utf8).starts(with: grant) } ?? false
    }
}
