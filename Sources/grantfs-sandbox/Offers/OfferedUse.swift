import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// A program uses an offered directory for the first time, and waits for the answer.
struct OfferedUse {
    let grant: Grant
    /// The process that was first. nil if it has ended, or is not visible.
    let process: Int32?
    /// Its name, which it chooses itself.
    let program: String
    /// Whether the view ends with the program.
    private let hasOwnView: Bool

    init(_ question: GrantAdministrator.OfferQuestion, of grant: Grant, hasOwnView: Bool) {
        (self.grant, self.hasOwnView) = (grant, hasOwnView)
        process = ProcessAncestry.process(ofThread: question.thread)
        let name = process.flatMap { try? File.contents(of: Array("/proc/\($0)/comm".utf8)) } ?? []
        program = String(decoding: name.prefix { $0 != 0x0A }, as: UTF8.self)
    }

    enum Answer: String, CaseIterable {
        /// Until the process that was first has ended.
        case once
        case session
        /// For half an hour.
        case minutes
        case readOnly
        case never
    }

    /// The answers that make sense, with their keys and names.
    private var choices: [(answer: Answer, key: String, name: String)] {
        // In a view that lasts, nobody would watch the process if this command were killed.
        (hasOwnView ? [(.once, "o", "[o] once"), (.session, "s", "[s] for this session")] : [(.session, "y", "[y] until it is revoked")])
            + [(.minutes, "m", "[m] for 30 minutes")]
            + (grant.access == .readWrite ? [(.readOnly, "r", "[r] to read only")] : []) + [(.never, "n", "[N] never")]
    }

    /// The question for a terminal with `columns` columns, where 0 means unknown. The path comes last, on lines of its own.
    func text(columns: Int) -> String {
        let columns = QuestionText.columns(columns)
        var lines = ["grantfs: a program uses a directory that was offered to it."]
        if let process { lines += QuestionText.words(program, most: 60, label: "process \(process): ", columns) }
        lines.append("grantfs: may it \(verb) this directory and all below it?")
        lines += QuestionText.wrapped(VisibleText.name(grant.bookmark.path), indent: "    ", columns)
        return lines.joined(separator: "\n")
    }

    var choiceText: String { "grantfs: " + choices.map(\.name).joined(separator: ", ") + "? " }

    /// The question as the title of a dialog, which is one line. The path stands last.
    var title: String {
        let name = QuestionText.plain(program, most: 40).map { "“\($0)”" } ?? "A program"
        let path = VisibleText.name(grant.bookmark.path)
        return "\(name) uses a directory that was offered to it: choose it to let the program \(verb) \(path)"
    }

    private var verb: String { grant.access == .readOnly ? "read" : "read and change" }

    /// Reads a typed answer. An empty line means never, and nil that it makes no sense.
    func answer(_ line: String) -> Answer? {
        let word = line.lowercased().filter { $0 != " " }
        if word.isEmpty { return .never }
        return choices.first { $0.key == word || $0.answer.rawValue.lowercased() == word }?.answer
    }
}
