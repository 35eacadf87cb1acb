import GrantCommandLine
import GrantModel

/// The completion of a command line that is being typed, from the declarations.
struct Completion {
    let program: ProgramDeclaration

    /// What a shell offers.
    enum Answer: Equatable {
        /// Words with a description each, which replace the last word.
        case words([Candidate])
        /// Left to the shell.
        case files, directories, commands
    }

    struct Candidate: Equatable {
        var word: String
        var about: String
    }

    /// Looks up names in the store, or `view` if one was given on the line.
    typealias Names = (_ kind: ValueKind, _ view: String?, _ store: String?) -> [Candidate]

    /// `words` are all words after the program's name. The last one is being typed and may be
    /// empty.
    func answer(to words: [String], names: Names) -> Answer {
        var scan = ParseState(program: program)
        for word in words.dropLast() { scan.read(word) }
        let typed = words.last ?? ""
        let known: (ValueKind) -> [Candidate] = { names($0, scan.given["view"], scan.given["store"]) }
        if let option = scan.open { return complete(typed, as: option.kind, known) }
        if !scan.isPastOptions, typed.hasPrefix("-") { return completeOption(typed, scan, known) }
        guard let command = scan.command, command.subcommands.isEmpty else {
            let commands = (scan.command?.subcommands ?? program.commands).filter { !$0.isHidden }
            return .words(commands.map { Candidate(word: $0.name, about: $0.summary) }.filter { $0.word.hasPrefix(typed) })
        }
        guard let kind = command.kind(ofOperand: scan.operandCount) else { return .words([]) }
        return complete(typed, as: kind, known)
    }

    private func completeOption(_ typed: String, _ scan: ParseState, _ known: (ValueKind) -> [Candidate]) -> Answer {
        if let equals = typed.firstIndex(of: "="), let option = scan.option(typed) {
            let head = String(typed[...equals])
            guard case .words(let words) = complete(String(typed[typed.index(after: equals)...]), as: option.kind, known) else {
                return .words([])
            }
            return .words(words.map { Candidate(word: head + $0.word, about: $0.about) })
        }
        let options = scan.candidates.filter { !$0.isHidden && ($0.isRepeatable || scan.given[$0.long] == nil) }
        return .words(options.map { Candidate(word: "--" + $0.long, about: $0.help) }.filter { $0.word.hasPrefix(typed) })
    }

    private func complete(_ typed: String, as kind: ValueKind, _ known: (ValueKind) -> [Candidate]) -> Answer {
        switch kind {
        case .grant, .view, .mountpoint: .words(known(kind).filter { $0.word.hasPrefix(typed) })
        case .directory: .directories
        case .file: .files
        case .command: .commands
        case .anything: .words([])
        case .choices(let words): .words(words.filter { $0.hasPrefix(typed) }.map { Candidate(word: $0, about: "") })
        case .mountOptions: .words(completeList(typed))
        }
    }

    /// Completes the last of several words separated by commas. No word is offered twice.
    private func completeList(_ typed: String) -> [Candidate] {
        let parts = typed.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        let head = parts.dropLast().map { $0 + "," }.joined()
        let last = parts.last ?? ""
        return MountOptionParser.completions.filter { $0.hasPrefix(last) && !parts.dropLast().contains($0) }
            .map { Candidate(word: head + $0, about: "") }
    }
}

/// The parsed words before the last one.
private struct ParseState {
    let program: ProgramDeclaration
    /// The last command or subcommand that was named.
    var command: CommandDeclaration?
    var operandCount = 0
    var isPastOptions = false
    /// The option whose value comes next.
    var open: OptionDeclaration?
    /// The last value of each option.
    var given: [String: String] = [:]

    init(program: ProgramDeclaration) { self.program = program }

    var candidates: [OptionDeclaration] { (command?.options ?? []) + program.commonOptions }

    /// Returns the option in a word such as `--view`, `--view=x` or `-o`.
    func option(_ word: String) -> OptionDeclaration? {
        let all = program.commonOptions + (command?.allOptions ?? program.commands.flatMap(\.allOptions))
        if word.hasPrefix("--") {
            let name = word.dropFirst(2).prefix { $0 != "=" }
            return all.first { $0.isNamed(name) }
        }
        return word.count == 2 ? all.first { $0.short == word.last } : nil
    }

    mutating func read(_ word: String) {
        if let option = open {
            given[option.long] = word
            open = nil
        } else if isPastOptions || !word.hasPrefix("-") || word == "-" {
            if let command, command.subcommands.isEmpty {
                operandCount += 1
            } else {
                command = (command?.subcommands ?? program.commands).first { $0.isNamed(word) } ?? command
            }
        } else if word == "--" {
            isPastOptions = true
        } else if let option = option(word) {
            let value = word.firstIndex(of: "=").map { String(word[word.index(after: $0)...]) }
            given[option.long] = value ?? ""
            if option.value != nil, value == nil { open = option }
        }
    }
}
