import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs repair`
enum RepairCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try check(arguments)
        if arguments.has("recorded") { return try showRecorded(arguments) }
        if let path = arguments.bytes("confirm") { return try confirm(path, arguments) }
        return try arguments.operands.isEmpty ? showSeveral(arguments) : showOne(arguments)
    }

    /// Throws `.usage` for options that do not go together.
    static func check(_ arguments: ParsedArguments) throws(GrantError) {
        let hasSelector = !arguments.operands.isEmpty
        if let path = arguments.bytes("confirm") {
            let advice = "grantfs repair SELECTOR --confirm PATH"
            guard let selector = arguments.operands.first else {
                throw GrantError(.usage, "repair: --confirm needs a SELECTOR", advice: advice)
            }
            if selector.contains(UInt8(ascii: "/")) {
                let shown = String(decoding: selector, as: UTF8.self)
                throw GrantError(.usage, "repair: “\(shown)” selects no grant", cause: "it is a path", advice: advice)
            }
            if path.isEmpty { throw GrantError(.usage, "repair: --confirm needs a PATH", advice: advice) }
        }
        let modes = ["confirm", "prune", "recorded"].filter { arguments.has($0) }
        if modes.count > 1 { throw GrantError(.usage, "repair: --\(modes[0]) and --\(modes[1]) do not go together") }
        if hasSelector, let option = ["all", "prune"].first(where: { arguments.has($0) }) {
            throw GrantError(.usage, "repair: SELECTOR and --\(option) do not go together")
        }
        if arguments.has("recorded"), !hasSelector, !arguments.has("all") {
            throw GrantError(.usage, "repair: --recorded needs a SELECTOR or --all")
        }
    }

    private static func showRecorded(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, selectors) = (try arguments.view(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grants = try selectors.isEmpty ? administrator.store.grants(view: view) : administrator.select(selectors, view: view)
        let documents = grants.map { JSON.object(JSON.identity($0) + [JSON.recorded($0.bookmark)]) }
        try Terminal.print(selectors.isEmpty ? JSON.array(documents).text : documents[0].text)
        return 0
    }

    private static func confirm(_ path: [UInt8], _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grant = try administrator.select(selectors, view: view)[0]
        let change = try administrator.confirm(grant, at: CanonicalPath.absolute(path), timeout: timeout)
        if !arguments.wantsJSON {
            Terminal.note("“\(change.grant.name)” is \(String(decoding: change.grant.bookmark.path, as: UTF8.self)) from now on")
        }
        return try Confirmation.print([change], "confirmed", "the confirmation", arguments: arguments)
    }

    private static func showOne(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, selectors) = (try arguments.view(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let described = administrator.describe(try administrator.select(selectors, view: view))[0]
        if arguments.wantsJSON {
            try Terminal.print(JSON.object(json(described, RepairProposal(described))).text)
        } else {
            try GrantDetails(described).printRepair()
        }
        return 0
    }

    /// Shows the grants that need repair, or every grant, and prunes.
    private static func showSeveral(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let found = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: found)
        guard let store = found else {
            if arguments.wantsJSON { try Terminal.print(JSON.array([]).text) }
            return 0
        }
        let administrator = GrantAdministrator.command(store)
        let grants: [(GrantDescription, RepairProposal?)] =
            try arguments.has("all")
            ? administrator.list(view: view, all: true).map { ($0, RepairProposal($0)) }
            : administrator.repairs(view: view).map { ($0.grant, $0) }
        if !arguments.wantsJSON { try show(grants) }
        let gone = arguments.has("prune") ? grants.compactMap(\.1).filter(\.isPrunable) : []
        if !arguments.wantsJSON {
            for proposal in gone { try Terminal.print("removing " + shown(proposal.grant)) }
        }
        let changes = gone.isEmpty ? [] : try administrator.remove(gone.map(\.grant.grant), timeout: timeout)
        if arguments.wantsJSON {
            let documents = grants.map { described, proposal in
                let change = changes.first { $0.grant.id == described.grant.id }
                return JSON.object(
                    json(described, proposal) + [("pruned", .bool(change != nil))] + (change.map { [JSON.mounts($0)] } ?? []))
            }
            try Terminal.print(JSON.array(documents).text)
        }
        return Confirmation.exitStatus(of: changes, "the removal")
    }

    private static func json(_ described: GrantDescription, _ proposal: RepairProposal?) -> [(String, JSON)] {
        JSON.grant(described) + [
            JSON.recorded(described.grant.bookmark), ("needs", proposal.map { .string($0.need.rawValue) } ?? .null),
        ]
    }

    private static func show(_ grants: [(GrantDescription, RepairProposal?)]) throws(GrantError) {
        if grants.isEmpty { return }
        var table = Table(header: ["NAME", "VIEW", "STATE", "BOOKMARK", "ID", "NEEDS", "PATH"])
        for (described, proposal) in grants {
            let grant = described.grant
            table.add([
                Terminal.visible(grant.name.bytes), Terminal.visible(grant.view.description), described.state.rawValue,
                described.finding.rawValue, String(grant.id.description.prefix(12)), proposal.map { text($0.need) } ?? "-",
                Terminal.visible(described.path) + copy(described),
            ])
        }
        try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput)))
    }

    /// The directory that a confirmation would accept, if it is elsewhere.
    private static func copy(_ grant: GrantDescription) -> String {
        guard let copy = grant.copy, copy != grant.path else { return "" }
        return " (its tag is at \(Terminal.visible(copy)))"
    }

    private static func shown(_ grant: GrantDescription) -> String {
        "\(Terminal.visible(grant.grant.name.bytes)) (\(grant.grant.id.description.prefix(12))) "
            + "in view \(Terminal.visible(grant.grant.view.description)): \(Terminal.visible(grant.path))"
    }

    static func text(_ need: RepairProposal.Need) -> String {
        switch need {
        case .renewal: "nothing: its next mount records the new place"
        case .untrashing: "to be taken out of the Trash"
        case .volume: "its filesystem to be mounted"
        case .answer: "its filesystem to answer"
        case .confirmation: "--confirm PATH, or its own directory back"
        case .choice: "all copies but one to go"
        case .directory: "its directory back, or --prune"
        }
    }
}
