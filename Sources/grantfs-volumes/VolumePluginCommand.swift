import GrantCommandLine
import GrantModel

/// `grantfs volume-plugin`
enum VolumePluginCommand {
    static let bodies: [String: CommandBody] = ["volume-plugin": run]

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 { 1 }
}
