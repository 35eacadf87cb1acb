import GrantCommandLine
import GrantModel

extension ParsedArguments {
    /// Throws `.usage` for options that need `--fleet`, with which `grantfs-fleet` runs the command.
    func refuseFleetOptions() throws(GrantError) {
        for option in ["hosts", "dry-run", "filesystem"] where has(option) {
            throw GrantError(.usage, "\(command): --\(option) is for --fleet")
        }
    }
}
