import GrantAdministration
import GrantModel

/// `grantfs list`
enum ListCommand {
    static let declaration = CommandDeclaration(
        "list", aliases: ["ls"], "Lists the grants: name, view, access, state, and where the directory is now.",
        options: [
            CommonOptions.view, OptionDeclaration("all", help: "revoked and expired ones as well"), CommonOptions.json,
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: store)
        let grants = try store.map { store throws(GrantError) in
            try GrantAdministrator.command(store).list(view: view, all: arguments.has("all"))
        }
        if arguments.wantsJSON {
            try Terminal.print(JSON.array((grants ?? []).map { .object(JSON.grant($0)) }).text)
            return 0
        }
        guard let grants else {
            Terminal.note("there is no store in \(try arguments.storeDirectory()) yet: nothing is granted")
            return 0
        }
        if grants.isEmpty { return 0 }
        var table = Table(header: ["NAME", "VIEW", "ACCESS", "STATE", "ID", "PATH"])
        for grant in grants {
            table.add([
                Terminal.visible(grant.grant.name.bytes), Terminal.visible(grant.grant.view.description), grant.grant.access.rawValue,
                state(grant), String(grant.grant.id.description.prefix(12)), Terminal.visible(grant.path),
            ])
        }
        try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput)))
        for grant in grants {
            guard let reason = grant.reason else { continue }
            Terminal.note("“\(grant.grant.name)” is not to be had: \(reason)")
        }
        return 0
    }

    /// With what is to be known of the bookmark.
    static func state(_ grant: GrantDescription) -> String {
        grant.finding == .ok ? grant.state.rawValue : "\(grant.state.rawValue) (\(grant.finding.rawValue))"
    }
}
