import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore

/// `grantfs watch`
enum WatchCommand {
    static let declaration = CommandDeclaration(
        "watch", "Shows what happens to grants and claims, as it happens, until interrupted.",
        options: [
            OptionDeclaration("fleet", help: "what administrators of the fleet do, which hosts come and go, and what they cannot do"),
            OptionDeclaration("json", help: "an object on each line"),
        ],
        notes: ["Entries of the log, and claims of each mount: claimants that wait, holders, ends."],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if try arguments.isAboutFleet() { return try FleetHistory.watch(arguments) }
        let store = try arguments.openStore()
        let stream = EventStream(store)
        var last = try end(of: store)
        var events = try stream.next(within: 0)
        while true {
            for entry in try store.log(after: last, limit: 1000) {
                if entry.isUnderWay { break }
                last = entry.number
                try Terminal.print(arguments.wantsJSON ? JSON.object(LogCommand.json(entry)).text : LogCommand.line(entry))
            }
            for event in events { try Terminal.print(arguments.wantsJSON ? JSON.object(json(event)).text : line(event)) }
            events = try stream.next(within: 0.2)
        }
    }

    /// The number of the log's last entry.
    private static func end(of store: GrantStore) throws(GrantError) -> Int64 {
        var last: Int64 = 0
        while true {
            let entries = try store.log(after: last, limit: 1000)
            guard let entry = entries.last else { return last }
            last = entry.number
        }
    }

    private static func json(_ event: MountEvent) -> [(String, JSON)] {
        [("number", .unsigned(event.number)), ("time", JSON.time(event.time)), ("event", .string(event.kind.rawValue))]
            + JSON.members("mountpoint", event.mountpoint) + JSON.members("path", event.path)
            + (event.newPath.map { JSON.members("newPath", $0) } ?? [("newPath", .null)])
            + [("pid", .integer(Int64(event.pid))), ("detail", .string(event.text))]
    }

    private static func line(_ event: MountEvent) -> String {
        var text = "\(Timestamp.localWithOffset(event.time))  \(event.kind.rawValue) \(Terminal.visible(event.path))"
        if let newPath = event.newPath { text += " to \(Terminal.visible(newPath))" }
        if !event.text.isEmpty { text += ": \(Terminal.visible(event.text))" }
        return text + "  [mount \(Terminal.visible(event.mountpoint))" + (event.pid > 0 ? ", pid \(event.pid)]" : "]")
    }
}
