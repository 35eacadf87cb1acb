import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs release`
enum ReleaseCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let kept = KeptFilesReport(administrator.store)
        defer { kept.print() }
        let changes = try administrator.release(try administrator.select(selectors, view: view), timeout: timeout)
        return try Confirmation.print(changes, "released", "the release", arguments: arguments)
    }
}
