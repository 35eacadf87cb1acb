import GrantAdministration
import GrantCommandLine
import GrantModel

/// `grantfs confirm`
enum ConfirmCommand {
    static let declaration = CommandDeclaration(
        "confirm", "Accepts the directory at the path of a grant's own, or with its tag.",
        operands: [OperandDeclaration("SELECTOR")],
        options: [CommonOptions.view, CommonOptions.timeout, CommonOptions.json],
        notes: [
            CommonOptions.selectorNote,
            "Only for a grant whose bookmark is “replaced”. Without this, another directory is never entered.",
            "grantfs resolve names the directory that would be accepted. Every user who may write to a directory can "
                + "give it a tag: look at it first.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let change = try administrator.confirm(try administrator.select(selectors, view: view)[0], timeout: timeout)
        if !arguments.wantsJSON {
            Terminal.note("“\(change.grant.name)” is \(String(decoding: change.grant.bookmark.path, as: UTF8.self)) from now on")
        }
        return try Confirmation.print([change], "confirmed", "the confirmation", arguments: arguments, timeout: timeout)
    }
}
