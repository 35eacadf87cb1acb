import GrantModel
import GrantMounts
import GrantStore

extension DirectoryProbe {
    /// The probe of all commands. Without the daemon's program a command looks itself, and says so.
    package static let command: DirectoryProbe = {
        do throws(GrantError) {
            return .helper(program: try DaemonProgram.path(), arguments: lookArguments)
        } catch {
            Terminal.report(error)
            return .inProcess
        }
    }()
    /// The arguments of a helper. They begin with the program's name, as ps(1) shows it.
    package static let lookArguments = ["grantfs", "look"]
}

extension GrantAdministrator {
    /// An administrator that does not hang with a directory.
    package static func command(_ store: GrantStore) -> GrantAdministrator { GrantAdministrator(store: store, probe: .command) }
}
