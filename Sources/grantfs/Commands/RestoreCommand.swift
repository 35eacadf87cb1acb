import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs restore`
enum RestoreCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("system") {
            let request = SystemRequest(
                .restore, view: try arguments.view(), selectors: try arguments.selectors().map(\.bytes), timeout: try arguments.timeout())
            return try SystemClient.run(request, verb: "restored", arguments)
        }
        try arguments.refuseFleetOptions()
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grants = try administrator.select(selectors, view: view, to: "restored")
        let before = Dictionary(uniqueKeysWithValues: grants.map { ($0.id, $0.activation) })
        let changes = try administrator.restore(grants, timeout: timeout)
        return try Confirmation.print(
            changes, { before[$0.id] == $0.activation ? "active already:" : "restored" }, "the restoration", arguments: arguments)
    }
}
