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

    /// Runs a command line and returns the exit status. A command of another program replaces this process by that program.
    ///
    /// `program`: the one that runs, or nil for the first. `bodies`: its commands by `CommandDeclaration.fullName`. `asLink`: the command's
    /// name is that of the program, and `--help` is for the command.
    package func run(_ words: [[UInt8]], asLink: Bool = false, as program: CompanionProgram? = nil, _ bodies: [String: CommandBody])
        -> Int32
    {
        do throws(GrantError) {
            switch try ArgumentParser(program: self).parse(words, asLink: asLink) {
            case .version: try Terminal.print("\(program?.rawValue ?? name) \(version)")
            case .help(nil): try Terminal.print(HelpText.program(self), terminator: "")
            case .help(let command?): try Terminal.print(HelpText.command(command, of: self), terminator: "")
            case .run(let command, let arguments):
                let owner = command.program(for: arguments)
                if let owner, program == nil { try owner.become(ProcessArguments.words) }
                guard owner == program, let body = bodies[command.fullName] else {
                    throw GrantError(
                        .usage, "\(program?.rawValue ?? name) does not run \(command.fullName)", advice: "use \(name) \(command.fullName)")
                }
                return try body(arguments)
            }
            return 0
        } catch {
            Terminal.report(error)
            return error.exitStatus
        }
    }
}

/// The code of a command. Returns the exit status.
package typealias CommandBody = @Sendable (ParsedArguments) throws(GrantError) -> Int32
