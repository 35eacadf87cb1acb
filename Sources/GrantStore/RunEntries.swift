import GrantModel
import GrantSystem

/// Shows the entries that one `grantfs run` leaves in the log as one, with its command. `--json`, `--view`, `--grant` and `--follow`
/// show each entry.
package struct RunEntries {
    /// The views of runs, and the processes that granted something to them.
    private var granting: [ViewName: Set<Int32>] = [:]

    package init(_ entries: [LogEntry]) {
        for entry in entries where RunEntries.command(of: entry) != nil {
            if let view = entry.view { granting[view] = [] }
        }
        for entry in entries where entry.event == .granted {
            if let view = entry.view { granting[view]?.insert(entry.actor.pid) }
        }
    }

    /// Whether the entry is for a step that every run does by itself. A grant that a person has
    /// revoked meanwhile is shown.
    package func hides(_ entry: LogEntry) -> Bool {
        // `grantfs why` lists the names, which may be hundreds.
        if entry.event == .wanted { return true }
        guard let view = entry.view, let processes = granting[view] else { return false }
        switch entry.event {
        case .granted, .unmounted: return true
        case .revoked, .removed: return processes.contains(entry.actor.pid)
        default: return false
        }
    }

    /// What the daemon of a run's view writes of its mount: the place, and the command.
    package static func detail(_ place: String, for command: String?) -> String { place + (command.map { ", for \($0)" } ?? "") }

    /// Returns the command of a run whose view was mounted, or nil for other entries.
    package static func command(of entry: LogEntry) -> String? {
        guard entry.event == .mounted, let view = entry.view else { return nil }
        return command(of: view, in: entry.detail)
    }

    static func command(of view: ViewName, in detail: String) -> String? {
        detail.utf8.place(ofPart: "/\(view), for ".utf8).map { String(detail[$0.upperBound...]) }
    }
}
