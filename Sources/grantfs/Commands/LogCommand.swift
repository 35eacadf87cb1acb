import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs log`
enum LogCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
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
            try store.readLog(after: 0) { entry in
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
            try Terminal.print(JSON.array(entries.map { .object(LogText.json($0)) }).text)
        } else {
            for entry in entries { try Terminal.print(LogText.line(entry)) }
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
}
