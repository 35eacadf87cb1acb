import GrantModel

/// The question whether a program may have a directory.
///
/// The program chooses its name, its reason, and among the paths that exist. It must not be able to lay them out as a question of
/// grantfs's own about something else: each line of them is indented, fits the terminal, and has no run of blanks.
struct MCPQuestion {
    /// The program's name of itself, or empty if it gave none.
    let client: String
    let path: [UInt8]
    let access: Access
    /// A checked time span, or nil for the rest of the session.
    var duration: String?
    let reason: String

    /// Returns the question for a terminal with `columns` columns, where 0 means unknown. The path
    /// comes last, on lines of its own.
    func text(columns: Int) -> String {
        let columns = QuestionText.columns(columns)
        var lines = ["grantfs: a program asks for a directory."]
        lines += QuestionText.words(client, most: 60, label: "its name: ", columns)
        lines += QuestionText.words(reason, most: 300, label: "it says:  ", columns)
        lines.append("grantfs: may it \(verb) this directory and all below it\(span)?")
        lines += QuestionText.wrapped(VisibleText.name(path), indent: "    ", columns)
        return lines.joined(separator: "\n")
    }

    /// The question as the title of a dialog, which is one line. The path stands last.
    var title: String {
        let name = QuestionText.plain(client, most: 40).map { "“\($0)”" } ?? "A program"
        let said = QuestionText.plain(reason, most: 80).map { " says “\($0)” and" } ?? ""
        return "\(name)\(said) asks\(span.isEmpty ? "" : span + ",") to \(verb) \(VisibleText.name(path))"
    }

    private var span: String { duration.map { ", for \($0)" } ?? "" }

    private var verb: String { access == .readOnly ? "read" : "read and change" }
}
