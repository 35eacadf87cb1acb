/// One option. The parser, the help and the suggestions all use its declaration.
package struct OptionDeclaration: Sendable {
    /// Without the dashes.
    package let long: String
    package let short: Character?
    /// Other names, without the dashes, that the help omits.
    package let aliases: [String]
    /// The metavariable in the help. It is nil for an option without a value.
    package let value: String?
    package let help: String
    package let isRepeatable: Bool
    /// Whether the help omits it: it is for mount helpers and for starting the daemon.
    package let isHidden: Bool
    /// The possible values, if there is a fixed list.
    package let choices: [String]
    /// The program that runs the command if this option is given, or nil for the command's own.
    package let program: CompanionProgram?

    package init(
        _ long: String, short: Character? = nil, aliases: [String] = [], value: String? = nil, help: String, choices: [String] = [],
        isRepeatable: Bool = false, isHidden: Bool = false, program: CompanionProgram? = nil
    ) {
        self.long = long
        self.aliases = aliases
        self.short = short
        self.value = value
        self.help = help
        self.isRepeatable = isRepeatable
        self.isHidden = isHidden
        self.choices = choices
        self.program = program
    }

    /// Whether the word without its dashes names this option.
    package func isNamed(_ word: some StringProtocol) -> Bool { long == word || aliases.contains { $0 == word } }

    /// Whether the word with its dashes is this option.
    package func isWritten(_ word: String) -> Bool {
        word.hasPrefix("--") ? isNamed(word.dropFirst(2)) : short.map { "-\($0)" == word } ?? false
    }
}

/// An operand.
package struct OperandDeclaration: Sendable {
    package let name: String
    package let isOptional: Bool
    package let isRepeatable: Bool
    /// The possible values, if there is a fixed list.
    package let choices: [String]
    /// Whether it is a command line with options of its own, after `--`.
    package let isCommand: Bool

    package init(
        _ name: String, choices: [String] = [], isOptional: Bool = false, isRepeatable: Bool = false, isCommand: Bool = false
    ) {
        self.name = name
        self.isCommand = isCommand
        self.choices = choices
        self.isOptional = isOptional
        self.isRepeatable = isRepeatable
    }

    /// The form in the help: `DIR`, `[DIR]`, `SELECTOR…`.
    package var usage: String {
        let name = (isCommand ? "-- " : "") + name + (isRepeatable ? "…" : "")
        return isOptional ? "[\(name)]" : name
    }
}

/// One command, or a subcommand: its arguments, its help, and the program that runs it.
package struct CommandDeclaration: Sendable {
    package let name: String
    /// The command that this is a subcommand of.
    package private(set) var parent: String?
    /// Other names, for users of other programs.
    package let aliases: [String]
    package let summary: String
    package let operands: [OperandDeclaration]
    package let options: [OptionDeclaration]
    /// Paragraphs at the end of the help.
    package let notes: [String]
    /// Whether the help omits it: it is for internal use.
    package let isHidden: Bool
    /// Whether the words after `--` are another program's command line: `ParsedArguments.trailing`.
    package let takesCommand: Bool
    /// Whether the words after its name belong to another program, except `--help` as the first of them.
    package let takesOthersWords: Bool
    /// A command with subcommands has neither operands nor options of its own.
    package let subcommands: [CommandDeclaration]
    /// The program that runs it, or nil for `grantfs`.
    package private(set) var program: CompanionProgram?

    package init(
        _ name: String, aliases: [String] = [], _ summary: String, operands: [OperandDeclaration] = [],
        options: [OptionDeclaration] = [], notes: [String] = [], isHidden: Bool = false, takesCommand: Bool = false,
        takesOthersWords: Bool = false, program: CompanionProgram? = nil
    ) {
        self.name = name
        self.takesOthersWords = takesOthersWords
        self.aliases = aliases
        self.summary = summary
        self.operands = operands
        self.options = options
        self.notes = notes
        self.isHidden = isHidden
        self.takesCommand = takesCommand
        self.program = program
        subcommands = []
    }

    /// A command with subcommands. The parser returns one of these, never the command itself.
    package init(
        _ name: String, _ summary: String, subcommands: [CommandDeclaration], notes: [String] = [], program: CompanionProgram? = nil
    ) {
        self.name = name
        self.summary = summary
        self.notes = notes
        self.program = program
        self.subcommands = subcommands.map { subcommand in
            var subcommand = subcommand
            subcommand.parent = name
            subcommand.program = program
            return subcommand
        }
        (aliases, operands, options, isHidden, takesCommand, takesOthersWords) = ([], [], [], false, false, false)
    }

    /// The words that name it: `grant`, `fleet invite`.
    package var fullName: String { parent.map { "\($0) \(name)" } ?? name }
    /// Its options and those of its subcommands.
    package var allOptions: [OptionDeclaration] { options + subcommands.flatMap(\.options) }
    /// Itself, or its subcommands if it has any.
    package var leaves: [CommandDeclaration] { subcommands.isEmpty ? [self] : subcommands }

    package func isNamed(_ word: String) -> Bool { name == word || aliases.contains(word) }

    /// The program that runs it with these arguments, or nil for `grantfs`.
    package func program(for arguments: ParsedArguments) -> CompanionProgram? {
        options.first { $0.program != nil && arguments.has($0.long) }?.program ?? program
    }

    /// Whether its last operand is another program's command line.
    package var endsWithCommand: Bool { operands.last?.isCommand == true }
    package var minOperands: Int { operands.count { !$0.isOptional } }
    package var maxOperands: Int { operands.contains { $0.isRepeatable } ? Int.max : operands.count }
}

/// The program: its commands, and the options that all of them have.
package struct ProgramDeclaration: Sendable {
    package let name: String
    package let version: String
    package let summary: String
    package let commands: [CommandDeclaration]
    /// Names of commands that exist no longer, and the command line to use instead.
    package let formerCommands: [String: String]
    package let commonOptions: [OptionDeclaration]
    /// The groups of commands in the help, by name. Commands in no group come after the last one.
    package let groups: [(title: String, commands: [String])]

    package init(
        name: String, version: String, summary: String, commands: [CommandDeclaration], formerCommands: [String: String] = [:],
        commonOptions: [OptionDeclaration], groups: [(title: String, commands: [String])]
    ) {
        self.name = name
        self.version = version
        self.summary = summary
        self.commands = commands
        self.formerCommands = formerCommands
        self.commonOptions = commonOptions
        self.groups = groups
    }

    /// Finds a command by its name or an alias.
    package func command(named name: String) -> CommandDeclaration? { commands.first { $0.isNamed(name) } }
}
