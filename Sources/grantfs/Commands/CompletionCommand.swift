import GrantCommandLine
import GrantModel

/// `grantfs completion`
enum CompletionCommand {
    static let declaration = CommandDeclaration(
        "completion", "Prints what makes a shell complete commands, options, grants and views.",
        operands: [OperandDeclaration("SHELL", choices: ShellScript.all.map(\.shell))],
        notes: [
            "SHELL is bash, zsh or fish. An installation puts the scripts where shells look for them. Without one: "
                + "“source <(grantfs completion bash)”, “source <(grantfs completion zsh)” after compinit, “grantfs completion fish | source”."
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let shell = String(decoding: arguments.operands[0], as: UTF8.self)
        guard let script = ShellScript.all.first(where: { $0.shell == shell }) else {
            throw GrantError(.usage, "there is no completion for “\(shell)”", advice: "bash, zsh or fish")
        }
        try Terminal.print(script.text, terminator: "")
        return 0
    }
}
