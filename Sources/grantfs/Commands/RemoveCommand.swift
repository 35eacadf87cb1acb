import GrantAdministration
import GrantModel

/// `grantfs remove`
enum RemoveCommand {
    static let declaration = CommandDeclaration(
        "remove", "Revokes grants, then forgets them. The log keeps what was.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [CommonOptions.view, CommonOptions.timeout, CommonOptions.json],
        notes: [CommonOptions.selectorNote],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        let changes = try administrator.remove(try administrator.select(selectors, view: view), timeout: timeout) { progress.show($0) }
        progress.end()
        return try Confirmation.print(changes, "removed", "the removal", arguments: arguments, timeout: timeout)
    }
}
