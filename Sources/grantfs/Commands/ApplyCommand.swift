import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs apply`
enum ApplyCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let state = try GrantFileInput.read(arguments.operands)
        let directory = try arguments.storeDirectory()
        // The store is created only when something is granted.
        let store = try arguments.openStoreIfThere()
        let planner = ApplyPlanner(administrator: store.map { GrantAdministrator.command($0) }, store: directory, probe: .command)
        let plan = try planner.plan(state, restores: arguments.has("restore"))
        let isDry = arguments.has("dry-run")
        let needsStore = store != nil || plan.steps.contains(where: \.isChange)
        if !arguments.wantsJSON { try ApplyText.show(plan) }
        if isDry || !needsStore {
            if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, [], isDry: isDry).text) }
            return 0
        }
        if !GrantFileInput.isWanted(takesAway: plan.steps.contains(where: \.takesAway), arguments) { return 1 }
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        Interruption.says("interrupted: the changes made so far stay (grantfs apply again makes the rest)", status: 3)
        let used = if let store { store } else { try GrantStore(directory: directory, create: true) }
        let administrator = GrantAdministrator.command(used)
        let changes = try administrator.apply(plan, timeout: timeout) { progress.show($0) }
        Interruption.end()
        progress.end()
        if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, changes, isDry: false).text) }
        return Confirmation.exitStatus(of: changes, "the change")
    }
}
