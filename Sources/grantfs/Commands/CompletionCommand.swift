import GrantCommandLine
import GrantModel

/// `grantfs completion`
enum CompletionCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let shell = String(decoding: arguments.operands[0], as: UTF8.self)
        guard let script = ShellScript.all.first(where: { $0.shell == shell }) else {
            throw GrantError(.usage, "there is no completion for “\(shell)”", advice: "bash, zsh or fish")
        }
        try Terminal.print(script.text, terminator: "")
        return 0
    }
}
