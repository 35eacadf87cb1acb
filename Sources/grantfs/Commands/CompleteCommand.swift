import GrantAdministration
import GrantCommandLine
import GrantDeclarations
import GrantModel
import GrantStore

/// `grantfs complete`: called by a shell's completion. It prints the kind of answer on the first
/// line. Then comes one candidate a line, its description after a tab.
enum CompleteCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let words = arguments.operands.map { String(decoding: $0, as: UTF8.self) }
        let completion = Completion(program: CommandLineProgram.declaration)
        try Terminal.print(text(of: completion.answer(to: words.isEmpty ? [""] : words, names: names)), terminator: "")
        return 0
    }

    static func text(of answer: Completion.Answer) -> String {
        switch answer {
        case .files: "files\n"
        case .directories: "directories\n"
        case .commands: "commands\n"
        case .words(let candidates): "words\n" + candidates.map { "\($0.word)\t\($0.about)\n" }.joined()
        }
    }

    /// Uses the store alone, so that no filesystem can block the shell. Errors are ignored: without a store nothing is offered.
    private static func names(_ kind: ValueKind, _ view: String?, _ directory: String?) -> [Completion.Candidate] {
        guard let place = try? StoreLocation.directory(explicit: directory.map { Array($0.utf8) }),
            let store = try? GrantStore(directory: place, create: false)
        else { return [] }
        let only = view.flatMap { try? ViewName($0) }
        switch kind {
        case .grant:
            let grants = (try? store.grants(view: only)) ?? []
            return grants.compactMap { typeable($0.name.bytes, about: "\($0.view): \(Terminal.visible($0.bookmark.path))") }.sorted()
        case .view:
            let views = Set(((try? store.grants(view: nil)) ?? []).map { $0.view.description })
            return views.sorted().map { Completion.Candidate(word: $0, about: "view") }
        case .mountpoint:
            return ((try? store.mounts(view: nil)) ?? []).compactMap { typeable($0.mountpoint, about: "view \($0.view)") }.sorted()
        default: return []
        }
    }

    /// Returns nil for names that cannot be typed: such a grant has its id.
    private static func typeable(_ bytes: [UInt8], about: String) -> Completion.Candidate? {
        let word = Terminal.visible(bytes)
        return Array(word.utf8) == bytes ? Completion.Candidate(word: word, about: about) : nil
    }
}

extension [Completion.Candidate] {
    fileprivate func sorted() -> Self { sorted { ($0.word, $0.about) < ($1.word, $1.about) } }
}
