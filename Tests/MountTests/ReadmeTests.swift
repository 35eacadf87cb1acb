import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct TheReadme {
        /// The commands of the tour, in order, without those that build and install.
        private var tour: [String] {
            get throws {
                let page = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../README.md").standardized
                let text = try String(contentsOf: page, encoding: .utf8)
                let section = try #require(text.components(separatedBy: "## A minute's tour").last)
                let block = section.components(separatedBy: "```")[1].split(separator: "\n").dropFirst().map(String.init)
                return block.filter { !$0.hasPrefix("make ") }
            }
        }

        /// Runs `$@`, a line each, as they are typed. What waits for keys gets a terminal, and an Escape or a q.
        private static let typing = #"""
            for line; do
                case $line in
                    'grantfs pick'*) printf '\033' | script -qec "$line" /dev/null >/dev/null ;;
                    'grantfs top'*) (sleep 1; printf q) | script -qec "$line" /dev/null >/dev/null ;;
                    *) eval "$line" ;;
                esac
                echo "status $?: $line"
                # What works with the grant notices, and ends.
                case $line in 'grantfs revoke '*) for turn in $(seq 300); do [ -n "$(jobs -rp)" ] || break; sleep 0.1; done ;; esac
            done
            kill $(jobs -p)
            """#

        @Test(
            "has a tour in which every command works as it is shown",
            .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
        func everyCommand() throws {
            let fixture = try MountFixture()
            let home = try fixture.directory("home")
            for name in ["Documents", "src"] { try fixture.directory("home/" + name) }
            try Data("note\n".utf8).write(to: URL(fileURLWithPath: home + "/Documents/notes.txt"))
            try Data("all:\n\t@echo made\n".utf8).write(to: URL(fileURLWithPath: home + "/src/Makefile"))
            let program = URL(fileURLWithPath: Programs.grantfs).deletingLastPathComponent().path
            let lines = try tour
            #expect(lines.count > 15)
            let output = try Command.run(
                ["bash", "-c", Self.typing, "bash"] + lines,
                environment: [
                    "HOME": home, "GRANTFS_STORE": fixture.store, "PATH": "\(program):/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "xterm",
                ],
                within: 120)
            for line in lines {
                // A choice that was escaped is none; the machine may lack something that doctor then names.
                let expected = line.hasPrefix("grantfs pick") ? ["1"] : line.hasPrefix("grantfs doctor") ? ["0", "1"] : ["0"]
                #expect(expected.contains { output.lines.contains("status \($0): \(line)") }, "\(line)\n\(output)")
            }
            #expect(output.lines.contains("notes.txt") && output.lines.contains("made"))
            #expect(output.errors.contains("Permission denied"))
        }
    }
}
