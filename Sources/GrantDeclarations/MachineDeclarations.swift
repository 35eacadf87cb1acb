import GrantCommandLine

extension CommandDeclaration {
    package static let policy = CommandDeclaration(
        "policy", "Checks the administrator's policy, and explains which line decides about a grant.",
        subcommands: [policyCheck, policyExplain])

    private static let policyCheck = CommandDeclaration(
        "check", "Checks the policy, and reports oddities such as an unknown user.",
        operands: [OperandDeclaration("FILE", isOptional: true)], options: [CommonOptions.json],
        notes: [
            "It reads the files *.toml in /etc/grantfs/policy.d, or FILE, which need not be installed yet. "
                + "Exit status: 1 when it could not be used."
        ])

    private static let policyExplain = CommandDeclaration(
        "explain", "Says whether a directory may be granted, and which line of the policy decides.",
        operands: [OperandDeclaration("PATH")],
        options: [
            OptionDeclaration("view", value: "V", help: "to which view (default: “default”)"),
            OptionDeclaration("user", value: "U", help: "the user who grants, by name or number (default: yourself)"),
            CommonOptions.readOnly("for reading alone (also: PATH:ro)"), CommonOptions.access, CommonOptions.json,
        ],
        notes: ["Exit status: 0 when it may be granted, 1 when not."])

    package static let doctor = CommandDeclaration(
        "doctor", "What is wrong with the machine, the store or the mounts, and what helps?",
        options: [CommonOptions.json],
        notes: [
            "As the user who runs it: root and others need different things. Exit status: 0 when all is well, 1 when something has to be done. "
                + "A “note” says what works with less than there could be."
        ])

    package static let serve = CommandDeclaration(
        "serve", "Answers one request for root's store on standard input, a connected socket.", isHidden: true)

    package static let completion = CommandDeclaration(
        "completion", "Prints what makes a shell complete commands, options, grants and views.",
        operands: [OperandDeclaration("SHELL", choices: ["bash", "zsh", "fish"])],
        notes: [
            "SHELL is bash, zsh or fish. An installation puts the scripts where shells look for them. Without one: "
                + "“source <(grantfs completion bash)”, “source <(grantfs completion zsh)” after compinit, “grantfs completion fish | source”."
        ])

    package static let complete = CommandDeclaration(
        "complete", "Prints the words that may follow a command line.",
        operands: [OperandDeclaration("WORD", isOptional: true, isRepeatable: true)], isHidden: true)

    package static let manual = CommandDeclaration(
        "manual", "Prints a part of grantfs(1), in mdoc(7): synopsis or options.",
        operands: [OperandDeclaration("PART", choices: ["synopsis", "options"])], isHidden: true)
}
