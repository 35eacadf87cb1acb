import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// `grantfs remove`
enum RemoveCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuseFleetOptions()
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        let grants = try administrator.select(selectors, view: view, to: "removed")
        let kept = KeptFilesReport(administrator.store)
        defer { kept.print() }
        let changes = try administrator.remove(
            grants, timeout: timeout, progress: { progress.show($0) },
            recorded: { Interruption.says(RevokeCommand.recorded(grants, "remove"), status: 3) })
        Interruption.end()
        progress.end()
        return try Confirmation.print(changes, "removed", "the removal", arguments: arguments)
    }
}
