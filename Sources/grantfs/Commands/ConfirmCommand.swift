import GrantKit
import GrantModel

/// `grantfs confirm`
enum ConfirmCommand {
    static let declaration = CommandDeclaration(
        "confirm", "Accepts the directory that now stands in the place of a grant's own, which was replaced.",
        operands: [OperandDeclaration("SELECTOR")],
        options: [CommonOptions.view, CommonOptions.timeout, CommonOptions.json],
        notes: [
            CommonOptions.selectorNote,
            "Only for a grant whose bookmark is “replaced”. Without this, another directory is never entered.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator(store: try arguments.openStore())
        let change = try administrator.confirm(try administrator.select(selectors, view: view)[0], timeout: timeout)
        return try Confirmation.print([change], "confirmed", "the confirmation", arguments: arguments, timeout: timeout)
    }
}
