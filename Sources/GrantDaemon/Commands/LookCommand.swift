import GrantCommandLine
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem

/// `grantfsd look`: the helper process that looks at directories for another command, which can then end even if one hangs.
enum LookCommand {
    static let declaration = CommandDeclaration(
        "look", "Answers on descriptor 3 what a command asks about directories.", isHidden: true)

    static func run(_ arguments: ParsedArguments) -> Int32 {
        ProcessName.set("grantfs-look")
        DirectoryProbe.serve(descriptor: 3)
        return 0
    }
}
