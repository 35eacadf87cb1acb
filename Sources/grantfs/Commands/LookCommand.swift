import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore

/// `grantfs look`: the helper process that looks at directories for another command, which can then end even if one hangs.
enum LookCommand {
    static let declaration = CommandDeclaration(
        "look", "Answers on descriptor 3 what a command asks about directories.", isHidden: true, run: run)

    private static func run(_ arguments: ParsedArguments) -> Int32 {
        DirectoryProbe.serve(descriptor: 3)
        return 0
    }
}

extension DirectoryProbe {
    /// The probe of all commands. The arguments begin with the program's name, as ps(1) shows it.
    static let command = DirectoryProbe.helper(program: lookProgram, arguments: lookArguments)
    static let lookProgram = "/proc/self/exe"
    static let lookArguments = ["grantfs", "look"]
}

extension GrantAdministrator {
    /// An administrator that does not hang with a directory.
    static func command(_ store: GrantStore) -> GrantAdministrator { GrantAdministrator(store: store, probe: .command) }
}
