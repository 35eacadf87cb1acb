import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import Glibc
import GrantModel
import GrantSystem

/// `log --fleet`.
enum FleetHistory {
    static func log(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let filter = try LogFilter(arguments)
        let fleet = try arguments.openFleet()
        // Older entries show as well whether a grant is known at all.
        let (all, revision) = try fleet.log(since: filter.grant == nil ? filter.since : nil)
        let follows = arguments.has("follow")
        if let grant = filter.grant, !follows, !all.contains(where: { filter.isOfGrant($0) }) {
            let shown = String(decoding: grant, as: UTF8.self)
            let near = Suggestion.nearest(to: shown, among: Set(all.compactMap(\.grant?.name)).sorted())
            throw GrantError(
                .notFound, "the fleet's log tells of no grant “\(shown)”",
                advice: near.map { "did you mean “\($0)”?" } ?? "grantfs log --fleet shows all there is")
        }
        let entries = follows && !filter.wantsEarlier ? [] : filter.last(all.filter { filter.takes($0) })
        if arguments.wantsJSON, !follows {
            try Terminal.print(JSON.array(entries.map { .object(json($0)) }).text)
            return 0
        }
        for entry in entries { try show(entry, arguments) }
        if !follows { return 0 }
        try follow(fleet, after: revision, filter, arguments)
    }

    /// Shows changes, and what happens to hosts, which the log does not record.
    private static func follow(
        _ fleet: FleetStore, after revision: Int64, _ filter: LogFilter, _ arguments: ParsedArguments
    ) throws(GrantError) -> Never {
        try fleet.follow(after: revision) { news in
            showOrEnd { () throws(GrantError) in
                switch news {
                case .done(let entry): if filter.takes(entry) { try show(entry, arguments) }
                // A host that comes or goes concerns every grant.
                case .live(let host): try show("live", host, nil, "an agent has its lease", arguments)
                case .gone(let host):
                    try show("gone", host, nil, "its lease is gone, and what the fleet granted is shut there", arguments)
                case .problem(let host, let grant, let text):
                    guard takes(grant, filter, arguments) else { return }
                    try show(text == nil ? "solved" : "problem", host, grant, text ?? "", arguments)
                case .missed: Terminal.note("etcd has compacted the changes since then (see grantfs log --fleet)")
                }
            }
        }
    }

    /// Whether the grant with this id is selected, or it is not known. It is looked up by a connection of its own: the other one waits.
    private static func takes(_ id: String, _ filter: LogFilter, _ arguments: ParsedArguments) -> Bool {
        guard filter.isOfSomeGrants, let known = try? arguments.openFleet().grants().grants else { return true }
        guard let grant = known.first(where: { $0.id.description == id }) else { return filter.view == nil && filter.isSelected(nil, id) }
        return (filter.view == nil || grant.view == filter.view) && filter.isSelected(grant.name.bytes, id)
    }

    /// Ends the program when its output has no reader any more.
    private static func showOrEnd(_ body: () throws(GrantError) -> Void) {
        do throws(GrantError) {
            try body()
        } catch {
            Terminal.report(error)
            exit(1)
        }
    }

    private static func show(_ entry: FleetLogEntry, _ arguments: ParsedArguments) throws(GrantError) {
        try Terminal.print(arguments.wantsJSON ? JSON.object(json(entry)).text : line(entry))
    }

    private static func show(
        _ event: String, _ host: String, _ grant: String?, _ text: String, _ arguments: ParsedArguments
    ) throws(GrantError) {
        let now = Instant(nanoseconds: Clock.realtime)
        if arguments.wantsJSON {
            let members: [(String, JSON)] = [
                ("time", JSON.time(now)), ("event", .string(event)), ("host", .string(host)),
                ("grant", grant.map { .string($0) } ?? .null), ("detail", .string(text)),
            ]
            return try Terminal.print(JSON.object(members).text)
        }
        let subject = grant.map { " (\(Terminal.visible(String($0.prefix(12)))))" } ?? ""
        try Terminal.print(
            "\(Timestamp.localWithOffset(now))  \(event) host \(Terminal.visible(host))\(subject)\(text.isEmpty ? "" : ": " + Terminal.visible(text))"
        )
    }

    private static func json(_ entry: FleetLogEntry) -> [(String, JSON)] {
        [
            ("time", JSON.time(entry.time)), ("event", .string(entry.event)), ("user", .string(entry.user)),
            ("machine", .string(entry.machine)), ("uid", .integer(entry.uid)), ("loginUid", entry.loginUID.map { .integer($0) } ?? .null),
            ("program", .string(entry.program)), ("view", entry.grant.map { .string($0.view) } ?? .null),
            ("grant", entry.grant.map { .string($0.id) } ?? .null), ("name", entry.grant.map { .string($0.name) } ?? .null),
            ("for", entry.grant.map { .string($0.hosts) } ?? .null), ("host", entry.host.map { .string($0) } ?? .null),
        ]
    }

    private static func line(_ entry: FleetLogEntry) -> String {
        var text = "\(Timestamp.localWithOffset(entry.time))  \(Terminal.visible(entry.event))"
        if let host = entry.host { text += " host \(Terminal.visible(host))" }
        if let grant = entry.grant {
            text +=
                " \(Terminal.visible(grant.name)) (\(Terminal.visible(String(grant.id.prefix(12))))) in view \(Terminal.visible(grant.view))"
            text += " for \(Terminal.visible(grant.hosts))"
        }
        let login = entry.loginUID.map { " (login \($0))" } ?? ""
        return text
            + "  [\(Terminal.visible(entry.user)) on \(Terminal.visible(entry.machine)), uid \(entry.uid)\(login), \(Terminal.visible(entry.program))]"
    }
}

extension LogFilter {
    fileprivate func takes(_ entry: FleetLogEntry) -> Bool {
        if let since, entry.time < since { return false }
        if let view, entry.grant?.view != view.description { return false }
        return isOfGrant(entry)
    }

    fileprivate func isOfGrant(_ entry: FleetLogEntry) -> Bool {
        isSelected(entry.grant.map { Array($0.name.utf8) }, entry.grant?.id)
    }
}
