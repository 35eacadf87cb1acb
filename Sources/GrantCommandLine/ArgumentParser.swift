import GrantModel

/// Parses a command line the GNU way: options anywhere, `--opt=value` or `--opt value`, `-abc`, `-oVALUE`, `--` ends them.
package struct ArgumentParser {
    let program: ProgramDeclaration

    package init(program: ProgramDeclaration) { self.program = program }

    /// Errors are `.usage`. `--help` and `--version` take precedence over errors.
    package func parse(_ words: [[UInt8]]) throws(GrantError) -> Invocation {
        var scan = ParseState(program: program)
        do {
            try scan.read(words)
        } catch {
            if scan.wantsHelp { return .help(scan.command) }
            throw error
        }
        if scan.wantsHelp { return .help(scan.command) }
        if scan.wantsVersion { return .version }
        guard let command = scan.command else {
            throw usage("a command is missing", advice: "grantfs --help lists them")
        }
        for (option, word) in scan.before where !(command.options + program.commonOptions).contains(where: { $0.long == option.long }) {
            throw usage("unknown option “\(word)” for \(command.name)", advice: "see grantfs \(command.name) --help")
        }
        try check(scan.parsed.operands, of: command)
        return .run(
            command,
            ParsedArguments(
                command: command.name, operands: scan.parsed.operands, trailing: scan.parsed.trailing, options: scan.parsed.options))
    }

    private func check(_ operands: [[UInt8]], of command: CommandDeclaration) throws(GrantError) {
        let advice = "see grantfs \(command.name) --help"
        if operands.count < command.minOperands {
            let missing = command.operands.filter { !$0.isOptional }[operands.count].name
            throw usage("\(command.name): \(missing) is missing", advice: advice)
        }
        if operands.count > command.maxOperands {
            let surplus = String(decoding: operands[command.maxOperands], as: UTF8.self)
            throw usage("\(command.name): “\(surplus)” is one word too many", advice: advice)
        }
    }
}

private func usage(_ message: String, advice: String? = nil) -> GrantError { GrantError(.usage, message, advice: advice) }

/// The state of parsing from left to right.
private struct ParseState {
    let program: ProgramDeclaration
    var command: CommandDeclaration?
    var parsed = ParsedArguments(command: "")
    /// Options that came before the command, to be checked once it is known.
    var before: [(option: OptionDeclaration, word: String)] = []
    var wantsHelp = false
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
            } catch {
                if !wantsHelp { throw error }
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
        if command != nil {
            parsed.operands.append(operand)
            return
        }
        let name = String(decoding: operand, as: UTF8.self)
        if name == "help" {
            wantsHelp = true
            return
        }
        guard let found = program.command(named: name) else {
            let near = Suggestion.nearest(to: name, among: program.commands.filter { !$0.isHidden }.map(\.name))
            throw usage("unknown command “\(name)”", advice: near.map { "did you mean “\($0)”?" } ?? "grantfs --help lists them")
        }
        command = found
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
        if command == nil { before.append((option, word)) }
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
        let isCommands = next.map { String(decoding: $0, as: UTF8.self) }.flatMap { program.command(named: $0) }?.options
            .contains { $0.isNamed(name) && $0.value == nil }
        return isCommands == true || next?.first == UInt8(ascii: "-") ? plain : valued
    }

    /// The options that are valid at this point. Before the command these are the options of all commands.
    private var candidates: [OptionDeclaration] {
        program.commonOptions + (command?.options ?? program.commands.flatMap(\.options))
    }

    /// `whole`: the complete word as typed, if it has several letters.
    private func unknown(_ word: String, in whole: String? = nil) -> GrantError {
        let known = candidates.filter { !$0.isHidden }
        let near = word.hasPrefix("--") ? Suggestion.nearest(to: word, among: known.map { "--" + $0.long }) : nil
        let place = command.map { " for \($0.name)" } ?? ""
        let help = command.map { "grantfs \($0.name) --help" } ?? "grantfs --help"
        if let command, command.endsWithCommand, !parsed.operands.isEmpty {
            let program = String(decoding: parsed.operands.last ?? [], as: UTF8.self)
            return usage(
                "unknown option “\(word)”\(place)",
                advice: "options of the program stand behind --: grantfs \(command.name) … -- \(program) \(whole ?? word)")
        }
        return usage("unknown option “\(word)”\(place)", advice: near.map { "did you mean “\($0)”?" } ?? "see \(help)")
    }
}
