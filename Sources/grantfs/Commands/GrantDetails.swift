import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore

/// One grant, in rows for people: `list NAME` and `repair SELECTOR`.
struct GrantDetails {
    let described: GrantDescription
    private var grant: Grant { described.grant }

    init(_ described: GrantDescription) { self.described = described }

    /// The grant, where its bookmark points, and what it needs.
    func printRepair() throws(GrantError) {
        var rows = identity + [("access", grant.access.rawValue), ("state", described.shownState), bookmark]
        rows += [("created", Timestamp.local(grant.created)), expiry]
        if let need = RepairProposal(described)?.need { rows.append(("needs", RepairCommand.text(need))) }
        try Table.print(rows: rows)
    }

    /// The grant, its history in the log, and the mounts that show it.
    func printAll(_ store: GrantStore) throws(GrantError) {
        let (granted, changed) = try history(in: store)
        var rows = identity + [("kind", grant.bookmark.document == nil ? "directory" : "document"), ("access", grant.access.rawValue)]
        rows += [("claims", grant.coordination.rawValue), ("state", described.shownState + since(changed)), bookmark]
        let actor = grant.fleetActivation == nil ? granted?.actor.description : "the fleet"
        rows += [("created", Timestamp.local(grant.created) + (actor.map { " by \(Terminal.visible($0))" } ?? "")), expiry]
        for list in grant.rules.lists { rows += list.patterns.map { (list.name, Terminal.visible($0.description)) } }
        if let tag = grant.bookmark.tag { rows.append(("tag", tag.description)) }
        if described.state == .active {
            for mount in try store.servedMounts() where mount.shows(grant.view) {
                rows.append(("mount", "\(Terminal.visible(mount.mountpoint)), pid \(mount.pid), since \(Timestamp.local(mount.since))"))
            }
        }
        try Table.print(rows: rows)
    }

    private var identity: [(String, String)] {
        [
            ("name", Terminal.visible(grant.name.bytes)), ("view", Terminal.visible(grant.view.description)),
            ("id", grant.id.description), ("path", Terminal.visible(described.path)),
        ]
    }

    private var expiry: (String, String) { ("expires", grant.expires.map { Timestamp.local($0) } ?? "never") }

    private var bookmark: (String, String) {
        ("bookmark", "\(described.finding.rawValue): \(Terminal.visible(described.reason ?? explanation))")
    }

    private var explanation: String {
        let item = grant.bookmark.document == nil ? "directory" : "file"
        return switch described.finding {
        case .ok: "the \(item) is where it was"
        case .moved: "the same \(item) under another path"
        case .replaced: "another \(item) is at its path and is not entered"
        case .missing: "the \(item) is nowhere on its filesystem"
        case .unavailable: "its filesystem is not mounted"
        case .ambiguous: "more than one \(item) could be it, and none is entered"
        case .weak: "found, on a filesystem without lasting file handles"
        }
    }

    /// The entries of the log that granted it and that changed its state last, as far as the log goes back.
    private func history(in store: GrantStore) throws(GrantError) -> (granted: LogEntry?, changed: LogEntry?) {
        var (granted, changed): (LogEntry?, LogEntry?) = (nil, nil)
        try store.readLog(after: 0) { entry in
            guard entry.grant == grant.id else { return }
            switch entry.event {
            case .granted: (granted, changed) = (entry, entry)
            case .revoked, .restored, .expired: changed = entry
            default: break
            }
        }
        return (granted, changed)
    }

    /// “ since TIME by ACTOR”, or nothing if the log does not have the present state's beginning.
    private func since(_ changed: LogEntry?) -> String {
        guard let changed else { return "" }
        switch (described.state, changed.event) {
        case (.active, .granted), (.active, .restored), (.revoked, .revoked):
            return " since \(Timestamp.local(changed.time)) by \(Terminal.visible(changed.actor.description))"
        case (.expired, .expired): return " since \(Timestamp.local(changed.time))"
        default: return ""
        }
    }
}
