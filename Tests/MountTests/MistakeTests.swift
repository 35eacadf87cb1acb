import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The page about mistakes is a table of what is typed and what is said. GRANTFS_RECORD_MISTAKES=1 writes its answers anew; read the difference before
    /// you keep it.
    @Suite struct Mistakes {
        private struct Row: Equatable {
            let typed: String
            let said: String
            let status: String

            var text: String { "| `\(typed)` | \(said) | \(status) |" }

            init(typed: String, said: String, status: String) { (self.typed, self.said, self.status) = (typed, said, status) }

            init?(_ line: String) {
                let cells = line.components(separatedBy: " | ")
                guard cells.count == 3, cells[0].hasPrefix("| `"), cells[0].hasSuffix("`") else { return nil }
                typed = String(cells[0].dropFirst(3).dropLast())
                said = cells[1]
                status = String(cells[2].dropLast(2))
            }
        }

        private static let file = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../docs/mistakes.md").standardized

        @Test(
            "are answered as the page says, with its exit statuses, and change nothing",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func table() throws {
            let page = try String(contentsOf: Self.file, encoding: .utf8)
            let rows = page.components(separatedBy: "\n").compactMap { Row($0) }
            #expect(rows.count >= 40)
            let setUp = Tours.shown(in: page).map(\.command)
            let fixture = try MountFixture(owner: Machine.plainUser!)
            let look = "grantfs list --all --json; findmnt -rn -t fuse.grantfs -o TARGET | grep \"^$HOME/\""
            let lines = setUp + [look] + rows.map { $0.typed + "; echo \"exit $?\"" } + [look]
            let (home, _, output) = try Tours.run(lines, as: fixture.owner, fixture)
            #expect(output[setUp.count] == output[lines.count - 1], "something was changed")
            let said = output[..<setUp.count].flatMap { $0 }
            #expect(said.isEmpty)
            let answers = zip(rows, output.dropFirst(setUp.count + 1)).map { row, printed in
                let said = Tours.plain(printed.dropLast(), home: home).joined(separator: "<br>")
                return Row(typed: row.typed, said: said, status: printed.last.map { String($0.dropFirst("exit ".count)) } ?? "")
            }
            if ProcessInfo.processInfo.environment["GRANTFS_RECORD_MISTAKES"] == "1" {
                let head = page.components(separatedBy: "| --- | --- | --- |\n")[0]
                try (head + "| --- | --- | --- |\n" + answers.map { $0.text + "\n" }.joined()).write(
                    to: Self.file, atomically: true, encoding: .utf8)
                return
            }
            for (row, answer) in zip(rows, answers) { #expect(answer == row) }
        }
    }
}
