import Foundation
import TestSupport

/// The table of docs/guides/sandbox.md: a row for each attempt, a column for each sandbox, and `yes` or `no` in the cells.
/// GRANTFS_RECORD_REACH=1 regenerates the cells. Read the difference before you keep it.
enum ReachTable {
    private static let page = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../../docs/guides/sandbox.md").standardized
    private static let writing = NSLock()

    static var isRecorded: Bool { ProcessInfo.processInfo.environment["GRANTFS_RECORD_REACH"] == "1" }

    private static func cells(_ line: String) -> [String] {
        line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
    }

    private static func lines() throws -> [String] { try String(contentsOf: page, encoding: .utf8).components(separatedBy: "\n") }

    /// Where the table is in these lines, its heading first.
    private static func place(in lines: [String]) throws -> Range<Int> {
        guard let first = lines.firstIndex(where: { $0.hasPrefix("| attempt |") }) else {
            throw TestFailure("\(page.path) has no table of attempts")
        }
        return first..<(lines[first...].firstIndex { !$0.hasPrefix("|") } ?? lines.endIndex)
    }

    /// The cells of a column, by the first one of their row.
    static func column(_ title: String) throws -> [String: String] {
        let lines = try lines()
        let table = lines[try place(in: lines)].map(cells)
        guard let column = table.first?.firstIndex(of: title) else { throw TestFailure("the table has no column “\(title)”") }
        let rows = table.dropFirst(2).compactMap { row in column < row.count ? (row[0], row[column]) : nil }
        return Dictionary(rows) { first, _ in first }
    }

    /// Writes the results into a column.
    static func record(_ found: [String: String], in title: String) throws {
        try writing.withLock {
            var lines = try lines()
            let place = try place(in: lines)
            guard let column = cells(lines[place.lowerBound]).firstIndex(of: title) else {
                throw TestFailure("the table has no column “\(title)”")
            }
            for index in place.dropFirst(2) {
                var row = cells(lines[index])
                guard let said = row.first.flatMap({ found[$0] }), column < row.count else { continue }
                row[column] = said
                lines[index] = "| " + row.joined(separator: " | ") + " |"
            }
            try lines.joined(separator: "\n").write(to: page, atomically: true, encoding: .utf8)
        }
    }
}
