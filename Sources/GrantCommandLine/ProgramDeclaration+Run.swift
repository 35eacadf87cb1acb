import GrantModel

extension ProgramDeclaration {
    /// The version of all programs.
    package static let version = "0.1.0"

    package static let standardOptions = [
        OptionDeclaration(
            "store", value: "DIR",
            help: "the store; else $GRANTFS_STORE, else /var/lib/grantfs for root, $XDG_DATA_HOME/grantfs for others"),
        OptionDeclaration("help", short: "h", help: "say this"),
        OptionDeclaration("version", help: "say the version"),
    ]

    /// Runs a command line and returns the exit status.
    package func run(_ words: [[UInt8]]) -> Int32 {
        do throws(GrantError) {
            switch try ArgumentParser(program: self).parse(words) {
            case .version: try Terminal.print("\(name) \(version)")
            case .help(nil): try Terminal.print(HelpText.program(self), terminator: "")
            case .help(let command?): try Terminal.print(HelpText.command(command, of: self), terminator: "")
            case .run(let command, let arguments): return try command.run(arguments)
            }
            return 0
        } catch {
            Terminal.report(error)
            return error.exitStatus
        }
    }
}
