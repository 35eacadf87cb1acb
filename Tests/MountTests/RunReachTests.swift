import Foundation
import TestSupport
import Testing

extension MountTests {
    /// docs/sandboxes.md has a table of what a program can reach in sandboxes of several makers. Each row of it is tried here.
    @Suite(
        "What a program can reach, by docs/sandboxes.md",
        .enabled(if: Machine.hasSandboxes && Identity.isRoot, "needs root, and bubblewrap has to work"))
    struct RunReach {
        private let fixture: MountFixture
        private let source: String
        private let home: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            home = try fixture.directory("home")
            try "granted\n".write(toFile: source + "/file", atomically: false, encoding: .utf8)
            try "secret\n".write(toFile: home + "/secret", atomically: false, encoding: .utf8)
        }

        /// What each row is about, and a script that succeeds when it can be reached. `$1` is the granted directory, `$2` the home, `$3` a process outside.
        private static let rows: [(title: String, script: String)] = [
            ("the granted directory, for writing", ": >$1/new"),
            ("another file in the home", "cat $2/secret"),
            ("a place outside that can be written to", "echo x >$2/written && test -s $2/written && cat $2/secret"),
            ("passwords in `/etc/shadow` of root", "cat /etc/shadow"),
            ("variables of the starter", "cat /proc/self/environ /proc/1/environ | grep -a OUTSIDE=secret"),
            ("other processes", "kill -0 $3"),
            ("the machine's network", "tail -n +3 /proc/net/dev | grep -v ' lo:'"),
            ("descriptors that the starter had open", "test -e /proc/self/fd/9"),
            ("the list of the user's keys", "grep -q . /proc/keys"),
            ("a user namespace of its own, with every capability", "unshare -U true"),
            ("switches of the kernel in `/proc/sys`", "find /proc/sys -type f -writable | grep ."),
        ]

        private func reaches(_ command: [String], _ script: String) throws -> Bool {
            let outside = try Child(["sleep", "600"])
            defer { outside.kill() }
            let words = ["sh", "-c", "exec 9<\"$1\"; shift; OUTSIDE=secret exec \"$@\"", "sh", source] + command
            let program = ["sh", "-c", "{ \(script); } >/dev/null 2>&1", "sh", source, home, "\(outside.pid)"]
            let environment = fixture.environment.merging(["HOME": home]) { $1 }
            return try Command.run(words + program, environment: environment, within: 60).status == 0
        }

        private static let page = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../docs/sandboxes.md").standardized

        /// The cells of the table, by the first one of their row.
        private func table() throws -> [String: [String]] {
            let text = try String(contentsOf: Self.page, encoding: .utf8)
            var table: [String: [String]] = [:]
            for line in text.split(separator: "\n") where line.hasPrefix("| ") {
                let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
                if let first = cells.first { table[first] = Array(cells.dropFirst()) }
            }
            return table
        }

        @Test("is what the table says", arguments: 0..<3)
        func table(column: Int) throws {
            let commands = [
                [Programs.grantfs, "run", "--grant", source, "--"],
                ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", source, source, "--unshare-all", "--"],
                ["firejail", "--quiet", "--noprofile", "--whitelist=" + source, "--"],
            ]
            let table = try table()
            let isThere = column == 0 || Command.exists(commands[column][0])
            for (title, script) in Self.rows {
                let cells = try #require(table[title], "“\(title)” is in the table")
                let said = try #require(cells.count == 3 ? cells[column] : nil)
                // Nothing is said of who was not there to be tried.
                guard isThere else {
                    #expect(said == "not tried", "\(title)")
                    continue
                }
                guard said != "not tried" else { continue }
                #expect(try reaches(commands[column], script) == (said == "yes"), "\(commands[column][0]): \(title)")
            }
        }
    }
}
