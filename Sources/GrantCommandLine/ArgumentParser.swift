import GrantModel

/// Parses a command line the GNU way: options anywhere, `--opt=value` or `--opt value`, `-abc`, `-oVALUE`, `--` ends them.
package struct ArgumentParser {
    let program: ProgramDeclaration

    package init(program: ProgramDeclaration) { self.program = program }

    /// Errors are `.usage`. `--help` and `--version` take precedence over errors.
    /// `asLink`: the words after the first are all the command's.
    package func parse(_ words: [[UInt8]], asLink: Bool = false) throws(GrantError) -> Invocation {
        if asLink, let name = words.first.map({ String(decoding: $0, as: UTF8.self) }), let command = program.command(named: name) {
            return .run(command, ParsedArguments(command: name, operands: Array(words.dropFirst())))
        }
        var scan = ParseState(program: program)
        do {
            try scan.read(words)
        } catch {
            if scan.wantsHelp, !scan.isFormerCommand { return .help(scan.command) }
            throw error
        }
        if scan.wantsHelp { return .help(scan.command) }
        if scan.wantsVersion { return .version }
        guard let command = scan.command else {
            throw usage("a command is missing", advice: "grantfs --help lists them")
        }
        guard command.subcommands.isEmpty else {
            throw usage("\(command.name): a subcommand is missing", advice: "grantfs \(command.name) --help lists them")
        }
        for (option, word) in scan.before where !(command.options + program.commonOptions).contains(where: { $0.long == option.long }) {
            throw scan.unknownOption(word, of: command)
        }
        try check(scan.parsed.operands, of: command)
        return .run(
            command,
            ParsedArguments(
                command: command.fullName, operands: scan.parsed.operands, trailing: scan.parsed.trailing,
                options: scan.parsed.options))
    }

    private func check(_ operands: [[UInt8]], of command: CommandDeclaration) throws(GrantError) {
        let name = command.fullName
        let advice = "see grantfs \(name) --help"
        if operands.count < command.minOperands {
            let missing = command.operands.filter { !$0.isOptional }[operands.count].name
            throw usage("\(name): \(missing) is missing", advice: advice)
        }
        if operands.count > command.maxOperands {
            let surplus = String(decoding: operands[command.maxOperands], as: UTF8.self)
            throw usage("\(name): “\(surplus)” is one word too many", advice: advice)
        }
    }
}

private func usage(_ message: String, advice: String? = nil) -> GrantError { GrantError(.usage, message, advice: advice) }

/// The state of parsing from left to right.
private struct ParseState {
    let program: ProgramDeclaration
    /// The last command or subcommand that was named.
    var command: CommandDeclaration?
    /// The command that `command` is a subcommand of.
    var parent: CommandDeclaration?
    var isFormerCommand = false
    var parsed = ParsedArguments(command: "")
    /// Options that came before the command or subcommand, to be checked once it is known.
    var before: [(option: OptionDeclaration, word: String)] = []
    var wantsHelp = false
    /// Whether one of the words is `help`.
    private var saysHelp = false
    var wantsVersion = false

    init(program: ProgramDeclaration) { self.program = program }

    mutating func read(_ words: [[UInt8]]) throws(GrantError) {
        var rest = words[...]
        // Help is shown even if an earlier word is wrong.
        wantsHelp = words.prefix { $0 != Array("--".utf8) }.contains(Array("--help".utf8))
        var firstError: GrantError?
        while let word = rest.popFirst() {
            do throws(GrantError) {
                if word == Array("--".utf8) {
                    if command?.takesCommand == true {
                        parsed.trailing = Array(rest)
                        break
                    }
                    for operand in rest { try parse(operand: operand) }
                    break
                }
                try parse(word, &rest)
                if command?.takesOthersWords == true {
                    let own = words.dropLast(rest.count) + rest.prefix(1)
                    wantsHelp = saysHelp || own.contains { $0 == Array("--help".utf8) || $0 == Array("-h".utf8) }
                    parsed.operands = Array(rest)
                    break
                }
            } catch {
                if !wantsHelp || isFormerCommand { throw error }
                firstError = firstError ?? error
            }
        }
        if let firstError { throw firstError }
    }

    private mutating func parse(_ word: [UInt8], _ rest: inout ArraySlice<[UInt8]>) throws(GrantError) {
        if word.starts(with: Array("--".utf8)) {
            try parse(long: word, &rest)
        } else if word.count > 1, word[0] == UInt8(ascii: "-") {
            try parse(short: word, &rest)
        } else {
            try parse(operand: word)
        }
    }

    private mutating func parse(operand: [UInt8]) throws(GrantError) {
        if isCommandKnown {
            parsed.operands.append(operand)
            return
        }
        let name = String(decoding: operand, as: UTF8.self)
        if name == "help" {
            (wantsHelp, saysHelp) = (true, true)
            return
        }
        guard let found = nextCommand(named: name) else { throw unknownCommand(name) }
        (parent, command) = (command, found)
    }

    /// Whether no command or subcommand follows.
    private var isCommandKnown: Bool { command?.subcommands.isEmpty ?? false }

    private func nextCommand(named name: String) -> CommandDeclaration? {
        (command?.subcommands ?? program.commands).first { $0.isNamed(name) }
    }

    private mutating func unknownCommand(_ name: String) -> GrantError {
        guard let command else {
            if let replacement = program.formerCommands[name] {
                isFormerCommand = true
                return usage("the command “\(name)” was replaced", advice: "use \(program.name) \(replacement)")
            }
            let near = Suggestion.nearest(to: name, among: program.commands.filter { !$0.isHidden }.map(\.name))
            return usage("unknown command “\(name)”", advice: near.map { "did you mean “\($0)”?" } ?? "grantfs --help lists them")
        }
        let message = "unknown subcommand “\(name)” of \(command.name)"
        // `fleet revoke` is `revoke --fleet`.
        if let other = program.command(named: name), other.options.contains(where: { $0.isNamed(command.name) }) {
            return usage(message, advice: "use \(program.name) \(other.name) --\(command.name)")
        }
        let near = Suggestion.nearest(to: name, among: command.subcommands.map(\.name))
        return usage(message, advice: near.map { "did you mean “\($0)”?" } ?? "grantfs \(command.name) --help lists them")
    }

    private mutating func parse(long word: [UInt8], _ rest: inout ArraySlice<[UInt8]>) throws(GrantError) {
        let body = word.dropFirst(2)
        let equals = body.firstIndex(of: UInt8(ascii: "="))
        let name = String(decoding: body[..<(equals ?? body.endIndex)], as: UTF8.self)
        guard let option = option(name, hasValue: equals != nil, next: rest.first) else { throw unknown("--" + name) }
        guard option.value != nil else {
            if equals != nil { throw usage("--\(name) takes no value") }
            set(option, [], as: "--" + name)
            return
        }
        if let equals {
            set(option, Array(body[(equals + 1)...]), as: "--" + name)
        } else {
            set(option, try value(of: "--" + name, option, &rest), as: "--" + name)
        }
    }

    private mutating func parse(short word: [UInt8], _ rest: inout ArraySlice<[UInt8]>) throws(GrantError) {
        var letters = word.dropFirst()
        while let letter = letters.popFirst() {
            let name = String(decoding: [letter], as: UTF8.self)
            guard let option = candidates.first(where: { $0.short.map(String.init) == name }) else {
                throw unknown(
                    "-" + (letter < 0x80 ? name : String(decoding: word.dropFirst(), as: UTF8.self)),
                    in: String(decoding: word, as: UTF8.self))
            }
            guard option.value != nil else {
                set(option, [], as: "-" + name)
                continue
            }
            set(option, letters.isEmpty ? try value(of: "-" + name, option, &rest) : Array(letters), as: "-" + name)
            return
        }
    }

    private func value(
        of word: String, _ option: OptionDeclaration, _ rest: inout ArraySlice<[UInt8]>
    ) throws(GrantError) -> [UInt8] {
        guard let value = rest.popFirst() else { throw usage("\(word) needs a value", advice: "\(word) \(option.value ?? "")") }
        return value
    }

    private mutating func set(_ option: OptionDeclaration, _ value: [UInt8], as word: String) {
        if option.long == "help" { wantsHelp = true }
        if option.long == "version" { wantsVersion = true }
        if !isCommandKnown { before.append((option, word)) }
        parsed.options[option.long, default: []].append(value)
    }

    /// Returns the option of this name. Before the command there may be two, one of which takes a value: the next word, a value or the
    /// command, decides.
    private func option(_ name: String, hasValue: Bool, next: [UInt8]?) -> OptionDeclaration? {
        let named = candidates.filter { $0.isNamed(name) }
        guard let plain = named.first(where: { $0.value == nil }), let valued = named.first(where: { $0.value != nil }) else {
            return named.first
        }
        if hasValue { return valued }
        let isCommands = next.flatMap { nextCommand(named: String(decoding: $0, as: UTF8.self)) }?.allOptions
            .contains { $0.isNamed(name) && $0.value == nil }
        return isCommands == true || next?.first == UInt8(ascii: "-") ? plain : valued
    }

    /// The options that are valid at this point. Before the command or subcommand these are the options of all of them.
    private var candidates: [OptionDeclaration] {
        program.commonOptions + (command?.allOptions ?? program.commands.flatMap(\.allOptions))
    }

    /// The error for an option that the command does not have. It names the subcommands that have it.
    func unknownOption(_ word: String, of command: CommandDeclaration, advice: String? = nil) -> GrantError {
        let owners = parent?.subcommands.filter { $0.options.contains { !$0.isHidden && $0.isWritten(word) } }.map(\.fullName) ?? []
        return GrantError(
            .usage, "unknown option “\(word)” for \(command.fullName)",
            cause: owners.isEmpty ? nil : "it is an option of \(owners.joined(separator: ", "))",
            advice: (owners.isEmpty ? advice : nil) ?? "see grantfs \(command.fullName) --help")
    }

    /// `whole`: the complete word as typed, if it has several letters.
    private func unknown(_ word: String, in whole: String? = nil) -> GrantError {
        let known = candidates.filter { !$0.isHidden }
        let near = word.hasPrefix("--") ? Suggestion.nearest(to: word, among: known.map { "--" + $0.long }) : nil
        let suggestion = near.map { "did you mean “\($0)”?" }
        guard let command else { return usage("unknown option “\(word)”", advice: suggestion ?? "see grantfs --help") }
        if command.endsWithCommand, !parsed.operands.isEmpty {
            let program = String(decoding: parsed.operands.last ?? [], as: UTF8.self)
            return usage(
                "unknown option “\(word)” for \(command.fullName)",
                advice: "options of the program stand behind --: grantfs \(command.fullName) … -- \(program) \(whole ?? word)")
        }
        return unknownOption(word, of: command, advice: suggestion)
    }
}
