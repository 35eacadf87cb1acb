import Foundation
import TestSupport
import Testing

extension MountTests {
    /// docs/sandboxes.md has a table of what a program can reach in sandboxes of several makers. Each row of it is tried here.
    @Suite(
        "What a program can reach, by docs/sandboxes.md",
        .enabled(
            if: Machine.hasSandboxes && Identity.isRoot && Machine.offers("python3"),
            "needs root and python3, and bubblewrap has to work"))
    struct RunReach {
        private let fixture: MountFixture
        private let source: String
        private let home: String
        /// The first is on the list of hosts.
        private let servers: [(child: Child, port: String)]

        private static let server = """
            import socket
            s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(50)
            print(s.getsockname()[1], flush=True)
            while True: s.accept()
            """

        init() throws {
            servers = try (0..<2).map { _ in
                let child = try Child(["python3", "-c", Self.server])
                return (child, try #require(child.line()))
            }
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
            ("a server on the machine's loopback", "bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0' $4"),
            ("a server that is on its list of hosts", proxied("$4")),
            ("a server that is not on that list", proxied("$5")),
            ("the machine's network", "tail -n +3 /proc/net/dev | grep -v ' lo:'"),
            ("descriptors that the starter had open", "test -e /proc/self/fd/9"),
            ("the list of the user's keys", "grep -q . /proc/keys"),
            ("a user namespace of its own, with every capability", "unshare -U true"),
            ("switches of the kernel in `/proc/sys`", "find /proc/sys -type f -writable | grep ."),
        ]

        /// A script that asks the proxy, if there is one, for a connection to a port of this machine.
        private static func proxied(_ port: String) -> String {
            let ask =
                "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:} && printf \"CONNECT 127.0.0.1:$0 HTTP/1.1\\r\\n\\r\\n\" >&3 && head -n 1 <&3"
            return "bash -c '\(ask)' \(port) | grep -w 200"
        }

        private func reaches(_ command: [String], _ script: String) throws -> Bool {
            let outside = try Child(["sleep", "600"])
            defer { outside.kill() }
            let words = ["sh", "-c", "exec 9<\"$1\"; shift; OUTSIDE=secret exec \"$@\"", "sh", source] + command
            let program = ["sh", "-c", "{ \(script); } >/dev/null 2>&1", "sh", source, home, "\(outside.pid)"] + servers.map(\.port)
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

        @Test("is what the table says", arguments: 0..<4)
        func table(column: Int) throws {
            let commands = [
                [Programs.grantfs, "run", "--grant", source, "--"],
                [Programs.grantfs, "run", "--network-hosts", "127.0.0.1:\(servers[0].port)", "--grant", source, "--"],
                ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", source, source, "--unshare-all", "--"],
                ["firejail", "--quiet", "--noprofile", "--whitelist=" + source, "--"],
            ]
            let table = try table()
            let isThere = column < 2 || Command.exists(commands[column][0])
            for (title, script) in Self.rows {
                let cells = try #require(table[title], "“\(title)” is in the table")
                let said = try #require(cells.count == 4 ? cells[column] : nil)
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
