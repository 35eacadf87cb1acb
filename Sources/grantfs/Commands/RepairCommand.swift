import GrantAdministration
import GrantCommandLine
import GrantModel

/// `grantfs repair`
enum RepairCommand {
    static let declaration = CommandDeclaration(
        "repair", "Lists the grants whose directory is not where it was, and what each would need.",
        options: [
            CommonOptions.view, OptionDeclaration("prune", help: "remove the grants whose directory is missing, naming each"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: ["A grant whose filesystem is not mounted, or whose directory lies in a Trash, is never pruned."],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let found = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: found)
        guard let store = found else {
            if arguments.wantsJSON { try Terminal.print(JSON.array([]).text) }
            return 0
        }
        let administrator = GrantAdministrator.command(store)
        let proposals = try administrator.repairs(view: view)
        if !arguments.wantsJSON { try show(proposals) }
        let gone = arguments.has("prune") ? proposals.filter(\.isPrunable) : []
        if !arguments.wantsJSON {
            for proposal in gone { try Terminal.print("removing " + shown(proposal.grant)) }
        }
        let changes = gone.isEmpty ? [] : try administrator.remove(gone.map(\.grant.grant), timeout: timeout)
        if arguments.wantsJSON {
            try Terminal.print(
                JSON.array(
                    proposals.map { proposal in
                        let change = changes.first { $0.grant.id == proposal.grant.grant.id }
                        return .object(
                            JSON.grant(proposal.grant) + [
                                ("needs", .string(proposal.need.rawValue)), ("pruned", .bool(change != nil)),
                            ] + (change.map { [JSON.mounts($0)] } ?? []))
                    }
                ).text)
        }
        return Confirmation.exitStatus(of: changes, "the removal", timeout: timeout)
    }

    private static func show(_ proposals: [RepairProposal]) throws(GrantError) {
        if proposals.isEmpty { return }
        var table = Table(header: ["NAME", "VIEW", "BOOKMARK", "ID", "NEEDS", "PATH"])
        for proposal in proposals {
            let grant = proposal.grant
            table.add([
                Terminal.visible(grant.grant.name.bytes), Terminal.visible(grant.grant.view.description), grant.finding.rawValue,
                String(grant.grant.id.description.prefix(12)), text(proposal.need), Terminal.visible(grant.path) + copy(grant),
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

    private static func text(_ need: RepairProposal.Need) -> String {
        switch need {
        case .renewal: "nothing: its next mount records the new place"
        case .untrashing: "to be taken out of the Trash"
        case .volume: "its filesystem to be mounted"
        case .answer: "its filesystem to answer"
        case .confirmation: "grantfs confirm, or its own directory back"
        case .choice: "all copies but one to go"
        case .directory: "its directory back, or --prune"
        }
    }
}
