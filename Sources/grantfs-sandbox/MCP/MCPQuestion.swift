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
        // A terminal that reports nothing is seldom narrower.
        let columns = columns == 0 ? 40 : max(columns, 24)
        var lines = ["grantfs: a program asks for a directory."]
        lines += words(client, most: 60, label: "its name: ", columns)
        lines += words(reason, most: 300, label: "it says:  ", columns)
        lines.append("grantfs: may it \(verb) this directory and all below it\(span)?")
        lines += Self.wrapped(VisibleText.name(path), indent: "    ", columns)
        return lines.joined(separator: "\n")
    }

    /// The question as the title of a dialog, which is one line. The path stands last.
    var title: String {
        let name = Self.plain(client, most: 40).map { "“\($0)”" } ?? "A program"
        let said = Self.plain(reason, most: 80).map { " says “\($0)” and" } ?? ""
        return "\(name)\(said) asks\(span.isEmpty ? "" : span + ",") to \(verb) \(VisibleText.name(path))"
    }

    private var span: String { duration.map { ", for \($0)" } ?? "" }

    private var verb: String { access == .readOnly ? "read" : "read and change" }

    /// Lines with the program's own words.
    private func words(_ text: String, most: Int, label: String, _ columns: Int) -> [String] {
        Self.plain(text, most: most).map { Self.wrapped($0, indent: "    " + label, columns) } ?? []
    }

    /// Returns the text in one line, with single blanks and without marks of quotation, or nil if
    /// nothing is left.
    private static func plain(_ text: String, most: Int) -> String? {
        let shown = VisibleText.of(VisibleText.cut(text, to: most)).map { "“”„\"".contains($0) ? "'" : $0 }
        let words = String(shown).split(separator: " ")
        return words.isEmpty ? nil : words.joined(separator: " ")
    }

    /// Wraps text into lines that fit the terminal, each with the indent, so that the terminal does
    /// not wrap any.
    private static func wrapped(_ text: String, indent: String, _ columns: Int) -> [String] {
        var (lines, line, width) = ([String](), indent, indent.count)
        for scalar in text.unicodeScalars {
            // Some characters take two columns. No character takes more.
            let columnsOfScalar = scalar.isASCII ? 1 : 2
            if width + columnsOfScalar > columns - 1 {
                lines.append(line)
                (line, width) = (indent, indent.count)
            }
            line.unicodeScalars.append(scalar)
            width += columnsOfScalar
        }
        return lines + [line]
    }
}
