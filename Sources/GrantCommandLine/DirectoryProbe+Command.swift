import GrantMounts
import GrantStore

extension DirectoryProbe {
    /// The probe of all commands. The arguments begin with the program's name, as ps(1) shows it.
    package static let command = DirectoryProbe.helper(program: lookProgram, arguments: lookArguments)
    package static let lookProgram = "/proc/self/exe"
    package static let lookArguments = ["grantfs", "look"]
}

extension GrantAdministrator {
    /// An administrator that does not hang with a directory.
    package static func command(_ store: GrantStore) -> GrantAdministrator { GrantAdministrator(store: store, probe: .command) }
}
