import GrantAdministration
import GrantCommandLine
import GrantModel

/// `grantfs release`
enum ReleaseCommand {
    static let declaration = CommandDeclaration(
        "release", "Closes grants' directories in every mount, so that their filesystem can be unmounted.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [CommonOptions.view, CommonOptions.timeout, CommonOptions.json],
        notes: [
            CommonOptions.selectorNote,
            "A released grant stays granted. It is back within a second of its filesystem being unmounted and mounted again.",
            "Open files of the grant are refused, but keep the filesystem busy until they are closed and the kernel has "
                + "forgotten them. The processes that hold them are named.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let kept = KeptFilesReport(administrator.store)
        defer { kept.print() }
        let changes = try administrator.release(try administrator.select(selectors, view: view), timeout: timeout)
        return try Confirmation.print(changes, "released", "the release", arguments: arguments, timeout: timeout)
    }
}
