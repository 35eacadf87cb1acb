import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The page about mistakes is a table of input and output. GRANTFS_RECORD_MISTAKES=1
    /// regenerates its answers. Read the difference before you keep it.
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

        private static let file = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../../docs/mistakes.md").standardized
        private static let writing = NSLock()

        /// The page's tables by their headings. The first belongs to the page's own heading.
        private static func rows(of page: String) -> [[Row]] {
            page.components(separatedBy: "\n## ").map { $0.components(separatedBy: "\n").compactMap { Row($0) } }
        }

        /// The output, in the form of the page.
        private static func answers(_ rows: [Row], _ output: ArraySlice<[String]>, home: String) -> [Row] {
            zip(rows, output).map { row, printed in
                let said = Tours.plain(printed.dropLast(), home: home).joined(separator: "<br>")
                return Row(typed: row.typed, said: said, status: printed.last.map { String($0.dropFirst("exit ".count)) } ?? "")
            }
        }

        private static func compare(_ rows: [Row], _ answers: [Row]) throws {
            #expect(rows.count == answers.count)
            guard ProcessInfo.processInfo.environment["GRANTFS_RECORD_MISTAKES"] == "1" else {
                for (row, answer) in zip(rows, answers) { #expect(answer == row) }
                return
            }
            try writing.withLock {
                var lines = try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n")
                var place = 0
                for (row, answer) in zip(rows, answers) {
                    place = try #require(lines[place...].firstIndex(of: row.text))
                    lines[place] = answer.text
                }
                let page = lines.joined(separator: "\n")
                try page.write(to: file, atomically: true, encoding: .utf8)
            }
        }

        private static func typing(_ rows: [Row]) -> [String] { rows.map { $0.typed + "; echo \"exit $?\"" } }

        @Test(
            "Each mistake of docs/mistakes.md prints its error and changes no grants",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func table() throws {
            let page = try String(contentsOf: Self.file, encoding: .utf8)
            let tables = Self.rows(of: page)
            let (rows, done) = (try #require(tables.first), try #require(tables.dropFirst().first))
            #expect(rows.count >= 40 && done.count >= 10)
            let setUp = Tours.shown(in: page).map(\.command)
            let fixture = try MountFixture(owner: Machine.plainUser!)
            let look = "grantfs list --all --json; findmnt -rn -t fuse.grantfs -o TARGET | grep \"^$HOME/\""
            let lines = setUp + [look] + Self.typing(rows) + [look] + Self.typing(done)
            let (home, _, output) = try Tours.run(lines, as: fixture.owner, fixture)
            let after = setUp.count + 1 + rows.count
            #expect(output[setUp.count] == output[after], "something was changed")
            let said = output[..<setUp.count].flatMap { $0 }
            #expect(said.isEmpty)
            try Self.compare(rows, Self.answers(rows, output[(setUp.count + 1)..<after], home: home))
            try Self.compare(done, Self.answers(done, output[(after + 1)...], home: home))
        }

        @Test(
            "mount(8) prints the errors of docs/mistakes.md to root and changes no grants",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func mountTable() throws {
            let rows = try #require(Self.rows(of: String(contentsOf: Self.file, encoding: .utf8)).dropFirst(2).first)
            #expect(rows.count >= 5)
            let fixture = try MountFixture()
            // The place in which mount(8) looks for helpers. The namespace is the test's own.
            let setUp = """
                mkdir ~/free ~/full ~/sbin; : >~/full/file; system=$(readlink -f /sbin)
                sed "s|^PATH=.*|&:$(dirname "$(command -v grantfs)")|" '\(Programs.mountHelper)' >~/sbin/mount.grantfs
                chmod 755 ~/sbin/mount.grantfs; mount -t overlay -o lowerdir="$HOME/sbin:$system" overlay "$system"
                """
            let look = "grantfs list --all --json; findmnt -rn -t fuse.grantfs -o TARGET | grep \"^$HOME/\""
            let (home, _, output) = try Tours.run([setUp, look] + Self.typing(rows) + [look], as: fixture.owner, fixture)
            #expect(output[0].isEmpty && output[1] == output[output.count - 1], "something was changed: \(output)")
            try Self.compare(rows, Self.answers(rows, output[2..<(output.count - 1)], home: home))
        }
    }
}
