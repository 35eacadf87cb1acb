import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// `grantfs set`
enum SetCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let (view, timeout, selectors) = (try arguments.view(), try arguments.timeout(), try arguments.selectors())
        let settings = try NewSettings(arguments)
        try arguments.refuseFleetOptions()
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let grant = try administrator.select(selectors, view: view)[0]
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        let change = try administrator.set(
            grant, access: settings.access, name: settings.name, expires: settings.expires, coordination: settings.coordination,
            rules: settings.rules, timeout: timeout,
            progress: { progress.show($0) },
            recorded: {
                Interruption.says(
                    "interrupted: the change of “\(grant.name)” is recorded and stays so, and each mount carries it out. "
                        + "Some may not have done so yet (grantfs set again waits for them)", status: 3)
            })
        Interruption.end()
        progress.end()
        if arguments.wantsJSON {
            let described = administrator.describe([change.grant])[0]
            try Terminal.print(JSON.object(JSON.grant(described) + [JSON.mounts(change)]).text)
            return Confirmation.exitStatus(of: [change], "the change")
        }
        let differences = grant.differences(to: change.grant).map { Terminal.visible($0) }
        let status = try Confirmation.print(
            [change], differences.isEmpty ? "unchanged:" : "changed", "the change", arguments: arguments)
        for difference in differences { try Terminal.print("  " + difference) }
        return status
    }
}
