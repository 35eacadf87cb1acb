import GrantCommandLine
import GrantModel

/// A table for people. The last column has no width limit.
package struct Table {
    package let header: [String]
    package private(set) var rows: [[String]] = []
    private var shades: [Shade?] = []

    package init(header: [String]) { self.header = header }

    /// The meaning of a row's colour.
    package enum Shade: Int {
        /// It was revoked.
        case gone = 31
        /// It is not as intended.
        case attention = 33
    }

    package mutating func add(_ row: [String], _ shade: Shade? = nil) {
        rows.append(row)
        shades.append(shade)
    }

    package func text(colour: Bool) -> String {
        let all = [header] + rows
        let widths = header.indices.map { column in all.map { Table.width(of: $0[column]) }.max() ?? 0 }
        return all.enumerated().map { index, row in
            let cells = row.enumerated().map { column, cell in
                column == row.count - 1 ? cell : cell + String(repeating: " ", count: widths[column] - Table.width(of: cell))
            }
            let line = cells.joined(separator: "  ")
            let code = index == 0 ? 1 : shades[index - 1]?.rawValue
            return code.map { colour ? "\u{1B}[\($0)m\(line)\u{1B}[0m" : line } ?? line
        }.joined(separator: "\n")
    }

    /// The width of a text in cells, as well as it is known without the terminal's own tables.
    private static func width(of text: String) -> Int {
        text.reduce(0) { width, character in
            guard let scalar = character.unicodeScalars.first else { return width }
            let isWide =
                (0x1100...0x115F).contains(scalar.value) || (0x2E80...0xA4CF).contains(scalar.value)
                || (0xAC00...0xD7A3).contains(scalar.value) || (0xF900...0xFAFF).contains(scalar.value)
                || (0xFE30...0xFE6F).contains(scalar.value) || (0xFF00...0xFF60).contains(scalar.value)
                || (0x1F300...0x1FAFF).contains(scalar.value)
            return width + (isWide ? 2 : 1)
        }
    }

    /// Prints a line for each key and its value.
    package static func print(rows: [(String, String)]) throws(GrantError) {
        for (key, value) in rows { try Terminal.print(key + String(repeating: " ", count: 10 - key.count) + value) }
    }
}
