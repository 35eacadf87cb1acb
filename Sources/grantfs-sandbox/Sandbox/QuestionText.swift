import GrantModel

/// The layout of a question about a program, which chooses some of the words.
///
/// It must not be able to lay them out as a question of grantfs's own about something else: each line of them is indented, fits the
/// terminal, and has no run of blanks.
enum QuestionText {
    /// The width to assume for a terminal that reports this one. One that reports nothing is seldom narrower.
    static func columns(_ reported: Int) -> Int { reported == 0 ? 40 : max(reported, 24) }

    /// Lines with the program's own words.
    static func words(_ text: String, most: Int, label: String, _ columns: Int) -> [String] {
        plain(text, most: most).map { wrapped($0, indent: "    " + label, columns) } ?? []
    }

    /// Returns the text in one line, with single blanks and without marks of quotation, or nil if
    /// nothing is left.
    static func plain(_ text: String, most: Int) -> String? {
        let shown = VisibleText.of(VisibleText.cut(text, to: most)).map { "“”„\"".contains($0) ? "'" : $0 }
        let words = String(shown).split(separator: " ")
        return words.isEmpty ? nil : words.joined(separator: " ")
    }

    /// Wraps text into lines that fit the terminal, each with the indent, so that the terminal does
    /// not wrap any.
    static func wrapped(_ text: String, indent: String, _ columns: Int) -> [String] {
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
