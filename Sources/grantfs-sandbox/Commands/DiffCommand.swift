import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs diff`
enum DiffCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("older"), !arguments.has("forget") { throw GrantError(.usage, "diff: --older is for --forget") }
        guard let store = try arguments.openStoreIfThere() else {
            if arguments.has("list"), arguments.wantsJSON { try Terminal.print("[]") }
            if arguments.has("list") { return 0 }
            throw GrantError(.notFound, "there is no snapshot of a run", advice: "grantfs run --snapshot makes one")
        }
        if arguments.has("list") { return try list(store, isJSON: arguments.wantsJSON) }
        if arguments.has("forget") { return try forget(arguments, store) }
        if arguments.operands.count > 1 { throw GrantError(.usage, "diff: one RUN at a time") }
        let snapshot = try RunSnapshot.find(try word(arguments), in: store)
        let changes = try snapshot.changes()
        if arguments.wantsJSON {
            try Terminal.print(
                JSON.object(try members(snapshot) + [("changes", .array(changes.map { ChangeText.json($0) }))]).text)
        } else {
            for change in changes {
                if arguments.has("patch") {
                    try ChangeText.printPatch(change, of: snapshot, to: Terminal.standardOutput)
                } else {
                    try Terminal.print(ChangeText.line(change))
                }
            }
            if changes.isEmpty { Terminal.note("nothing has changed since before run \(snapshot.id)") }
        }
        let unread = changes.filter { $0.aspects.contains(.unread) }
        for change in unread { Terminal.note("“\(Terminal.visible(change.place))” cannot be read") }
        if unread.isEmpty { return 0 }
        throw GrantError(
            .incomplete, "run \(snapshot.id) is not shown completely", cause: ChangeText.count(unread) + " unread",
            advice: "give yourself the right to read it, with chmod for example")
    }

    static func word(_ arguments: ParsedArguments) throws(GrantError) -> String? {
        try arguments.operands.first.map { (word) throws(GrantError) in try ParsedArguments.text(word, "RUN") }
    }

    /// For people: `running`, `interrupted`, `ended`, `undone`.
    private static func state(_ snapshot: RunSnapshot) throws(GrantError) -> String {
        let state = try snapshot.state
        return state == .running && !snapshot.isBusy ? "interrupted" : state.rawValue
    }

    private static func members(_ snapshot: RunSnapshot) throws(GrantError) -> [(String, JSON)] {
        [
            ("id", .string(snapshot.id)), ("state", .string(try state(snapshot))), ("began", JSON.time(try snapshot.began)),
            ("command", .array(try snapshot.command.map { .string(String(decoding: $0, as: UTF8.self)) })),
            ("directories", .array(try snapshot.directories.map { .string(String(decoding: $0, as: UTF8.self)) })),
        ] + JSON.members("snapshot", snapshot.path)
    }

    private static func list(_ store: GrantStore, isJSON: Bool) throws(GrantError) -> Int32 {
        let all = RunSnapshot.all(in: store)
        if isJSON {
            var documents: [JSON] = []
            for snapshot in all { documents.append(.object(try members(snapshot))) }
            try Terminal.print(JSON.array(documents).text)
            return 0
        }
        var table = Table(header: ["RUN", "BEGAN", "STATE", "COMMAND", "DIRECTORIES"])
        for snapshot in all {
            table.add([
                snapshot.id, Timestamp.local(try snapshot.began), try state(snapshot),
                Terminal.visible(Array(try snapshot.command.joined(separator: [0x20]).prefix(60))),
                try snapshot.directories.map { Terminal.visible($0) }.joined(separator: " "),
            ])
        }
        if all.isEmpty { Terminal.note("there are no snapshots of runs") } else { try Terminal.print(table.text(colour: false)) }
        return 0
    }

    private static func forget(_ arguments: ParsedArguments, _ store: GrantStore) throws(GrantError) -> Int32 {
        var chosen: [RunSnapshot] = []
        for operand in arguments.operands {
            chosen.append(try RunSnapshot.find(try ParsedArguments.text(operand, "RUN"), in: store))
        }
        if let text = try arguments.text("older") {
            let now = Instant(nanoseconds: Clock.realtime)
            let last = try Expiry.parsePast(text, now: now)
            for snapshot in RunSnapshot.all(in: store) where !snapshot.isBusy {
                if try snapshot.began.nanoseconds <= last.nanoseconds { chosen.append(snapshot) }
            }
        } else if chosen.isEmpty {
            throw GrantError(.usage, "diff: --forget needs a RUN, or --older", advice: "grantfs diff --list names them")
        }
        for snapshot in chosen { try snapshot.forget() }
        if arguments.wantsJSON { try Terminal.print(JSON.array(chosen.map { .string($0.id) }).text) }
        return 0
    }
}
