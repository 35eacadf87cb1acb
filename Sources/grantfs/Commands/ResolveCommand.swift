import GrantAdministration
import GrantCommandLine
import GrantModel

/// `grantfs resolve`
enum ResolveCommand {
    static let declaration = CommandDeclaration(
        "resolve", "Says where a grant's bookmark points now and what state it is in, touching nothing.",
        operands: [OperandDeclaration("SELECTOR", isOptional: true)],
        options: [
            CommonOptions.view, OptionDeclaration("all", help: "every grant, in any state"),
            OptionDeclaration("recorded", help: "what the bookmark holds, as JSON, without a look at any disk"),
            OptionDeclaration("fleet", help: "a grant of the fleet, and how each host stands to it"), CommonOptions.json,
        ],
        notes: [CommonOptions.selectorNote],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, selectors) = (try arguments.view(), try arguments.selectors())
        if selectors.isEmpty != arguments.has("all") {
            throw GrantError(.usage, "resolve: one of the two is needed", cause: nil, advice: "a SELECTOR, or --all")
        }
        if try arguments.isAboutFleet() { return try FleetResolution.run(arguments) }
        let administrator = GrantAdministrator.command(try arguments.openStore())
        if arguments.has("recorded") {
            let grants = selectors.isEmpty ? try administrator.store.grants(view: view) : try administrator.select(selectors, view: view)
            let documents = grants.map { JSON.object(JSON.identity($0) + [JSON.recorded($0.bookmark)]) }
            try Terminal.print(selectors.isEmpty ? JSON.array(documents).text : documents[0].text)
            return 0
        }
        if selectors.isEmpty, let view { try administrator.requireKnown(view) }
        if selectors.isEmpty { return try showAll(try administrator.list(view: view, all: true), arguments) }
        let described = administrator.describe(try administrator.select(selectors, view: view))[0]
        if arguments.wantsJSON {
            try Terminal.print(JSON.object(JSON.grant(described) + [JSON.recorded(described.grant.bookmark)]).text)
            return 0
        }
        let grant = described.grant
        let rows = [
            ("name", Terminal.visible(grant.name.bytes)), ("view", Terminal.visible(grant.view.description)),
            ("id", grant.id.description), ("path", Terminal.visible(described.path)), ("access", grant.access.rawValue),
            ("state", described.state.rawValue),
            (
                "bookmark",
                "\(described.finding.rawValue): \(described.reason ?? explanation(described.finding, grant.bookmark.document == nil ? "directory" : "file"))"
            ),
            ("created", Timestamp.local(grant.created)), ("expires", grant.expires.map { Timestamp.local($0) } ?? "never"),
        ]
        for (key, value) in rows {
            try Terminal.print(key + String(repeating: " ", count: 10 - key.count) + value)
        }
        return 0
    }

    private static func showAll(_ grants: [GrantDescription], _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(grants.map { .object(JSON.grant($0) + [JSON.recorded($0.grant.bookmark)]) }).text)
            return 0
        }
        var table = Table(header: ["NAME", "VIEW", "STATE", "BOOKMARK", "ID", "PATH"])
        for described in grants {
            let grant = described.grant
            table.add([
                Terminal.visible(grant.name.bytes), Terminal.visible(grant.view.description), described.state.rawValue,
                described.finding.rawValue, String(grant.id.description.prefix(12)), Terminal.visible(described.path),
            ])
        }
        if !grants.isEmpty { try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput))) }
        return 0
    }

    /// `item`: “directory” or “file”.
    private static func explanation(_ finding: BookmarkFinding, _ item: String) -> String {
        switch finding {
        case .ok: "the \(item) is where it was"
        case .moved: "the same \(item) under another path"
        case .replaced: "another \(item) is at its path and is not entered"
        case .missing: "the \(item) is nowhere on its filesystem"
        case .unavailable: "its filesystem is not mounted"
        case .ambiguous: "more than one \(item) could be it, and none is entered"
        case .weak: "found, on a filesystem without lasting file handles"
        }
    }
}
