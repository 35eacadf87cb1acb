import GrantCommandLine
import GrantConsoles
import GrantDesktop
import GrantCommandSupport
import GrantAdministration
import GrantModel
import GrantStore

/// `grantfs pick --desktop`
struct DesktopPick {
    let arguments: ParsedArguments
    let view: ViewName
    let timeout: Double
    let rules: GrantRules

    /// Grants what the person chooses in the desktop's dialog, each under its own name: all or nothing.
    func run(start: [UInt8]?) throws(GrantError) -> Int32 {
        let directory = try arguments.storeDirectory()
        guard let chosen = try DesktopChooser.choose(folder: start, files: arguments.has("files")), let first = chosen.first else {
            return PickCommand.cancelled()
        }
        var choices: [GrantAdministrator.Choice] = []
        for path in chosen {
            let proposal = try GrantAdministrator.propose(
                directory: path, name: nil, store: directory, document: PickCommand.form(arguments), probe: .command)
            let access = try arguments.access() ?? .readWrite
            let expires = try arguments.text("expires").map { (text) throws(GrantError) in try PickCommand.expiry(text) }
            choices.append(
                GrantAdministrator.Choice(proposal, name: proposal.name, view: view, access: access, expires: expires, rules: rules))
        }
        let store = try GrantStore(directory: directory, create: true)
        let changes = try GrantAdministrator.command(store).grant(choices, timeout: timeout)
        LastDirectory.write(CanonicalPath.parent(of: first))
        return try PickCommand.print(changes, arguments, timeout)
    }
}
