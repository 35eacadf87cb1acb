import GrantAdministration
import GrantCommandLine
import GrantModel

/// `grantfs restore`
enum RestoreCommand {
    static let declaration = CommandDeclaration(
        "restore", "Makes revoked or expired grants active again, in every mount of their view.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [
            CommonOptions.view, SystemClient.restoreOption, FleetOptions.fleet, FleetOptions.dryRun, CommonOptions.timeout,
            CommonOptions.json,
        ],
        notes: [CommonOptions.selectorNote, "Handles from before the revocation stay refused. New opens work."],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("system") {
            if arguments.has("fleet") { throw GrantError(.usage, "restore: --system and --fleet do not go together") }
            let request = SystemRequest(
                .restore, view: try arguments.view(), selectors: try arguments.selectors().map(\.bytes), timeout: try arguments.timeout())
            return try SystemClient.run(request, verb: "restored", arguments)
        }
        if try arguments.isAboutFleet() { return try FleetGrants.restore(arguments) }
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grants = try administrator.select(selectors, view: view, to: "restored")
        let before = Dictionary(uniqueKeysWithValues: grants.map { ($0.id, $0.activation) })
        let changes = try administrator.restore(grants, timeout: timeout)
        return try Confirmation.print(
            changes, { before[$0.id] == $0.activation ? "active already:" : "restored" }, "the restoration", arguments: arguments,
            timeout: timeout)
    }
}
