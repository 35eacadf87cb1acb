import GrantModel

/// One option, declared once: the parser, the help and the suggestions all come from here.
struct OptionDeclaration: Sendable {
    /// Without the dashes.
    let long: String
    let short: Character?
    /// Other words for it, without the dashes, that the help leaves out.
    let aliases: [String]
    /// What the value is called in the help; nil for an option that takes none.
    let value: String?
    let help: String
    let isRepeatable: Bool
    /// Left out of the help: for mount helpers and for the daemon's own start.
    let isHidden: Bool
    /// What may stand there, where that is a fixed list.
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

    /// Whether the word without its dashes means this option.
    func isCalled(_ word: some StringProtocol) -> Bool { long == word || aliases.contains { $0 == word } }
}

/// One word that is no option.
struct OperandDeclaration: Sendable {
    let name: String
    let isOptional: Bool
    let isRepeatable: Bool
    /// What may stand there, where that is a fixed list.
    let choices: [String]
    /// It has options of its own, so `--` stands before it.
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

    /// As the help shows it: `DIR`, `[DIR]`, `SELECTOR…`.
    var usage: String {
        let name = (isCommand ? "-- " : "") + name + (isRepeatable ? "…" : "")
        return isOptional ? "[\(name)]" : name
    }
}

/// One command: its words, and what it does.
struct CommandDeclaration: Sendable {
    let name: String
    /// Other names for it, that whoever comes from another program types.
    let aliases: [String]
    let summary: String
    let operands: [OperandDeclaration]
    let options: [OptionDeclaration]
    /// Paragraphs at the end of the help.
    let notes: [String]
    /// Left out of the help: for the program's own use.
    let isHidden: Bool
    /// What stands behind `--` is another program's command line: `ParsedArguments.trailing`.
    let takesCommand: Bool
    /// Does it; the result is the exit status.
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

    /// Whether its last words are another program's command line.
    var endsWithCommand: Bool { operands.last?.isCommand == true }
    var smallestOperandCount: Int { operands.count { !$0.isOptional } }
    var largestOperandCount: Int { operands.contains { $0.isRepeatable } ? Int.max : operands.count }
}

/// The program: its commands, and the options that each of them has.
struct ProgramDeclaration: Sendable {
    let name: String
    let version: String
    let summary: String
    let commands: [CommandDeclaration]
    let commonOptions: [OptionDeclaration]
    /// How the help arranges the commands, by their names. Those that no group has stand behind the last one.
    let groups: [(title: String, commands: [String])]

    /// By its name, or another one for it.
    func command(named name: String) -> CommandDeclaration? { commands.first { $0.name == name || $0.aliases.contains(name) } }
}
