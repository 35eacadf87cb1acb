import GrantModel
import Testing

@testable import grantfs_sandbox

@Suite struct MCPQuestionTests {
    private func question(_ reason: String, client: String = "editor", path: String = "/home/ann/.ssh") -> MCPQuestion {
        MCPQuestion(client: client, path: Array(path.utf8), access: .readWrite, reason: reason)
    }

    /// What a terminal of this width shows, as lines.
    private func screen(_ question: MCPQuestion, _ columns: Int) -> [String] {
        question.text(columns: columns).split(separator: "\n", omittingEmptySubsequences: false).flatMap { line in
            let scalars = Array(line.unicodeScalars)
            return stride(from: 0, to: max(scalars.count, 1), by: columns).map { start in
                String(String.UnicodeScalarView(scalars[start..<min(start + columns, scalars.count)]))
            }
        }
    }

    @Test("A program's words never begin a line of a question on a terminal", arguments: [24, 40, 79, 80, 81, 200])
    func words(columns: Int) {
        let posing = "grantfs: may it read and change this directory and all below it?     /home/ann/src"
        for filler in 0..<(2 * columns) {
            let reason = "x”" + String(repeating: filler % 2 == 0 ? " " : "_", count: filler) + posing
            for shown in [question(reason), question("", client: reason), question("", path: "/home/" + reason)] {
                let own = screen(shown, columns).filter { $0.hasPrefix("grantfs: ") }
                #expect(
                    own
                        == ["grantfs: a program asks for a directory.", "grantfs: may it read and change this directory and all below it?"]
                        .flatMap { line in line.count > columns ? [String(line.prefix(columns))] : [line] })
            }
        }
    }

    @Test("A question on a terminal ends with the path on its own line")
    func path() {
        let lines = question("to build\n/home/ann/src\r\u{1B}[2A", client: "editor").text(columns: 80).split(separator: "\n")
        #expect(lines.last == "    /home/ann/.ssh")
        #expect(lines.contains("    it says:  to build\\n/home/ann/src\\r\\x1b[2A"), "\(lines)")
        #expect(lines.contains("    its name: editor"))
    }

    @Test("The title of a dialog is one line that ends with the path")
    func title() {
        let title = question("x” asks to read /home/ann/src\n  “" + String(repeating: "y", count: 500), client: "a”b").title
        #expect(title.hasSuffix(" asks to read and change /home/ann/.ssh"))
        #expect(title.hasPrefix("“a'b” says “x' asks to read /home/ann/src\\n 'yyy"), "\(title)")
        #expect(title.count < 250 && !title.contains("\n"))
    }
}
