import GrantModel

/// One option. The parser, the help and the suggestions all use its declaration.
struct OptionDeclaration: Sendable {
    /// Without the dashes.
    let long: String
    let short: Character?
    /// Other names, without the dashes, that the help omits.
    let aliases: [String]
    /// The metavariable in the help. It is nil for an option without a value.
    let value: String?
    let help: String
    let isRepeatable: Bool
    /// Whether the help omits it: it is for mount helpers and for starting the daemon.
    let isHidden: Bool
    /// The possible values, if there is a fixed list.
    let choices: [String]

    init(
        _ long: String, short: Character? = nil, aliases: [String] = [], value: String? = nil, help: String, choices: [String] = [],
        isRepeatable: Bool = false, isHidden: Bool = false
    ) {
        self.long = long
        self.aliases = aliases
        self.short = short
        self.value = value
        self.help = help
        self.isRepeatable = isRepeatable
        self.isHidden = isHidden
        self.choices = choices
    }

    /// Whether the word without its dashes names this option.
    func isNamed(_ word: some StringProtocol) -> Bool { long == word || aliases.contains { $0 == word } }
}

/// An operand.
struct OperandDeclaration: Sendable {
    let name: String
    let isOptional: Bool
    let isRepeatable: Bool
    /// The possible values, if there is a fixed list.
    let choices: [String]
    /// Whether it is a command line with options of its own, after `--`.
    let isCommand: Bool

    init(
        _ name: String, choices: [String] = [], isOptional: Bool = false, isRepeatable: Bool = false, isCommand: Bool = false
    ) {
        self.name = name
        self.isCommand = isCommand
        self.choices = choices
        self.isOptional = isOptional
        self.isRepeatable = isRepeatable
    }

    /// The form in the help: `DIR`, `[DIR]`, `SELECTOR…`.
    var usage: String {
        let name = (isCommand ? "-- " : "") + name + (isRepeatable ? "…" : "")
        return isOptional ? "[\(name)]" : name
    }
}

/// One command: its arguments, and what it does.
struct CommandDeclaration: Sendable {
    let name: String
    /// Other names, for users of other programs.
    let aliases: [String]
    let summary: String
    let operands: [OperandDeclaration]
    let options: [OptionDeclaration]
    /// Paragraphs at the end of the help.
    let notes: [String]
    /// Whether the help omits it: it is for internal use.
    let isHidden: Bool
    /// Whether the words after `--` are another program's command line: `ParsedArguments.trailing`.
    let takesCommand: Bool
    /// Runs the command and returns the exit status.
    let run: @Sendable (ParsedArguments) throws(GrantError) -> Int32

    init(
        _ name: String, aliases: [String] = [], _ summary: String, operands: [OperandDeclaration] = [],
        options: [OptionDeclaration] = [], notes: [String] = [], isHidden: Bool = false, takesCommand: Bool = false,
        run: @escaping @Sendable (ParsedArguments) throws(GrantError) -> Int32
    ) {
        self.name = name
        self.aliases = aliases
        self.summary = summary
        self.operands = operands
        self.options = options
        self.notes = notes
        self.isHidden = isHidden
        self.takesCommand = takesCommand
        self.run = run
    }

    /// Whether its last operand is another program's command line.
    var endsWithCommand: Bool { operands.last?.isCommand == true }
    var minOperands: Int { operands.count { !$0.isOptional } }
    var maxOperands: Int { operands.contains { $0.isRepeatable } ? Int.max : operands.count }
}

/// The program: its commands, and the options that all of them have.
struct ProgramDeclaration: Sendable {
    let name: String
    let version: String
    let summary: String
    let commands: [CommandDeclaration]
    let commonOptions: [OptionDeclaration]
    /// The groups of commands in the help, by name. Commands in no group come after the last one.
    let groups: [(title: String, commands: [String])]

    /// Finds a command by its name or an alias.
    func command(named name: String) -> CommandDeclaration? { commands.first { $0.name == name || $0.aliases.contains(name) } }
}
