import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs log`
enum LogCommand {
    static let declaration = CommandDeclaration(
        "log", "Shows who granted, revoked, restored, changed, mounted, or was denied, and when.",
        options: [
            OptionDeclaration("grant", value: "SELECTOR", help: "only of grants of this name, or with this id or beginning of an id"),
            OptionDeclaration("since", value: "WHEN", help: "only entries that are not older: 30m, 1h, 7d, or an ISO 8601 time"),
            CommonOptions.view,
            OptionDeclaration("lines", short: "n", value: "N", help: "only the last N entries"),
            OptionDeclaration(
                "follow",
                help: "show entries, and events of mounts, as they come, until interrupted, with --since or -n earlier entries first"),
            OptionDeclaration("fleet", help: "changes by administrators of the fleet, on every machine"),
            OptionDeclaration("json", help: "one JSON document on stdout, with --follow one on each line"),
        ],
        notes: [
            "Events of mounts are not recorded: waits, grants and ends of claims, their changes to files, and the end of a mount. "
                + "With --fleet, --follow also shows which hosts come and go, and what they cannot do."
        ],
        run: run)

    /// The number of entries read at once.
    private static let batch = 1000

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if try arguments.isAboutFleet() { return try FleetHistory.log(arguments) }
        let filter = try LogFilter(arguments)
        if arguments.has("follow") {
            var follower = try LogFollower(try arguments.openStore(), filter, asJSON: arguments.wantsJSON)
            return try follower.run()
        }
        var entries: [LogEntry] = []
        var names: Set<String> = []
        var isKnown = filter.grant == nil
        let store = try arguments.openStoreIfThere()
        if let store {
            try read(store, after: 0) { entry in
                if !isKnown, filter.isOfGrant(entry) { isKnown = true }
                if let name = entry.name, !isKnown { names.insert(name.description) }
                if filter.takes(entry) { entries.append(entry) }
            }
        }
        if !isKnown { try requireGrant(filter, in: store, names) }
        if !arguments.wantsJSON, filter.view == nil, filter.grant == nil {
            let runs = RunEntries(entries)
            entries.removeAll { runs.hides($0) }
        }
        entries = Array(filter.last(entries))
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(entries.map { .object(json($0)) }).text)
        } else {
            for entry in entries { try Terminal.print(line(entry)) }
        }
        return 0
    }

    /// The grant may exist without entries, if the log has dropped them. `names`: the names in the log.
    private static func requireGrant(_ filter: LogFilter, in store: GrantStore?, _ names: Set<String>) throws(GrantError) {
        guard let grant = filter.grant else { return }
        let shown = String(decoding: grant, as: UTF8.self)
        let grants = try store?.grants() ?? []
        if grants.contains(where: { $0.name.bytes == grant || $0.id.description.hasPrefix(shown.count >= 8 ? shown.lowercased() : "-") }) {
            return
        }
        let near = Suggestion.nearest(to: shown, among: names.union(grants.map(\.name.description)).sorted())
        throw GrantError(
            .notFound, "the log tells of no grant “\(shown)”",
            advice: near.map { "did you mean “\($0)”?" } ?? "grantfs log shows all there is")
    }

    /// Returns the number of the last entry. `waits`: leaves entries after an unfinished one for the next time.
    @discardableResult
    static func read(
        _ store: GrantStore, after number: Int64, waits: Bool = false, _ body: (LogEntry) throws(GrantError) -> Void
    ) throws(GrantError) -> Int64 {
        var last = number
        while true {
            let entries = try store.log(after: last, limit: batch)
            for entry in entries {
                if waits, entry.isUnderWay { return last }
                try body(entry)
                last = entry.number
            }
            if entries.count < batch { return last }
        }
    }

    static func json(_ entry: LogEntry) -> [(String, JSON)] {
        var members: [(String, JSON)] = [
            ("number", .integer(entry.number)), ("time", JSON.time(entry.time)), ("event", .string(entry.event.rawValue)),
            ("uid", .unsigned(UInt64(entry.actor.uid))), ("pid", .integer(Int64(entry.actor.pid))),
            ("loginUid", entry.actor.loginUID.map { .unsigned(UInt64($0)) } ?? .null),
            ("program", .string(entry.actor.program)), ("view", entry.view.map { .string($0.description) } ?? .null),
            ("grant", entry.grant.map { .string($0.description) } ?? .null),
        ]
        if let name = entry.name { members += JSON.members("name", name.bytes) } else { members.append(("name", .null)) }
        members.append(("detail", .string(entry.detail)))
        if let access = entry.access { members.append(("access", .string(access.rawValue))) }
        if let path = entry.path { members += JSON.members("path", path) }
        if let newPath = entry.newPath { members += JSON.members("newPath", newPath) }
        if let count = entry.count { members.append(("count", .integer(count))) }
        if let error = entry.error { members.append(("result", .integer(Int64(error)))) }
        return members
    }

    static func line(_ entry: LogEntry) -> String {
        if let command = RunEntries.command(of: entry), let view = entry.view {
            return
                "\(Timestamp.localWithOffset(entry.time))  ran \(Terminal.visible(command)) in view \(Terminal.visible(view.description))"
                + "  [\(entry.actor.description)]"
        }
        var text = "\(Timestamp.localWithOffset(entry.time))  \(entry.event.rawValue)"
        if let name = entry.name { text += " \(Terminal.visible(name.bytes))" }
        if let grant = entry.grant { text += " (\(grant.description.prefix(12)))" }
        if let view = entry.view { text += " in view \(Terminal.visible(view.description))" }
        if let path = entry.path { text += " \(Terminal.visible(path))" }
        if let newPath = entry.newPath { text += " to \(Terminal.visible(newPath))" }
        if let access = entry.access { text += access.purpose }
        if let error = entry.error, error != 0 { text += ": \(Errno(error))" }
        if entry.isUnfinished { text += ": begun, and not known to have ended" }
        if !entry.detail.isEmpty { text += ": \(Terminal.visible(entry.detail))" }
        return text + "  [\(entry.actor.description)]"
    }
}

extension LogEntry {
    /// Whether the operation has just started. Following the log waits for its result, at most some seconds.
    var isUnderWay: Bool { isUnfinished && Instant(nanoseconds: Clock.realtime).seconds(since: time) < 5 }
}

extension OpenAccess {
    /// For people.
    fileprivate var purpose: String {
        switch self {
        case .read: " for reading"
        case .write: " for writing"
        case .readWrite: " for reading and writing"
        }
    }
}
