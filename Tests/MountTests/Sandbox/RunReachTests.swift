import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// docs/guides/sandbox.md has a table of the places that a program can reach in sandboxes of several
    /// makers. Each cell of it is tried here.
    @Suite(
        "The reach of a program, by docs/guides/sandbox.md",
        .enabled(
            if: Machine.hasSandboxes && Identity.isRoot && Machine.offers("python3") && access("/srv", W_OK) == 0,
            "needs root, python3 and /srv, and bubblewrap has to work"))
    struct RunReach {
        /// A column of the table.
        enum Maker: String {
            case grantfs = "grantfs run"
            case hosts = "with a list of hosts"
            case bubblewrap = "bwrap"
            case firejail
            case container = "systemd-nspawn"
        }

        private let fixture: MountFixture
        private let source: String
        private let home: String
        private let outside: MountFixture
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
            // Outside the directory of temporary files, which every sandbox replaces.
            fixture = try MountFixture(in: "/srv")
            outside = try MountFixture()
            source = try fixture.source("docs")
            home = try fixture.directory("home")
            try "granted\n".write(toFile: source + "/file", atomically: false, encoding: .utf8)
            try "secret\n".write(toFile: home + "/secret", atomically: false, encoding: .utf8)
        }

        /// What each row is about, and a script that succeeds when it can be reached. `$1` is the granted directory, `$2` the home, `$3` a process outside.
        private static let rows: [(title: String, script: String)] = [
            ("another file in the home", "cat $2/secret"),
            ("passwords in `/etc/shadow` of root", "cat /etc/shadow"),
            ("variables of the starter", "cat /proc/self/environ /proc/1/environ | grep -a OUTSIDE=secret"),
            ("other processes", "kill -0 $3"),
            ("a server on the machine's loopback", "bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0' $4"),
            ("a server that is on its list of hosts", proxied("$4")),
            ("a server that is not on that list", proxied("$5")),
            ("the machine's network", "tail -n +3 /proc/net/dev | grep -v ' lo:'"),
            ("descriptors that the starter had open", "test -e /proc/self/fd/9"),
            ("the list of the user's keys", "grep -q . /proc/keys"),
            ("devices of the machine, such as `/dev/fuse`", ": </dev/fuse"),
            ("to mount a filesystem", "mount -t tmpfs none /tmp"),
            ("a user namespace of its own, with every capability", "unshare -U true"),
            ("switches of the kernel in `/proc/sys`", "find /proc/sys -type f -writable | grep ."),
        ]

        /// A script that asks the proxy, if there is one, for a connection to a port of this machine.
        private static func proxied(_ port: String) -> String {
            let ask =
                "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:} && printf \"CONNECT 127.0.0.1:$0 HTTP/1.1\\r\\n\\r\\n\" >&3 && head -n 1 <&3"
            return "bash -c '\(ask)' \(port) | grep -w 200"
        }

        /// The words in front of a program. `record`: the file for a record of its actions, if the
        /// sandbox can make one.
        private static func words(_ maker: Maker, source: String, host: String = "", record: String? = nil) -> [String] {
            switch maker {
            case .grantfs: [Programs.grantfs, "run"] + (record.map { ["--audit", $0] } ?? []) + ["--grant", source, "--"]
            case .hosts:
                [Programs.grantfs, "run", "--network-hosts", host] + (record.map { ["--audit", $0] } ?? [])
                    + ["--grant", source, "--"]
            case .bubblewrap:
                ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", source, source, "--unshare-all", "--"]
            case .firejail:
                // As root it leaves mounts below /run/firejail behind, so it gets a namespace for them.
                ["unshare", "--mount", "firejail", "--quiet", "--noprofile", "--whitelist=" + source]
                    + (record.map { ["--trace=" + $0] } ?? []) + ["--"]
            case .container:
                [
                    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--directory=/", "--volatile=yes", "--private-network",
                    "--as-pid2", "--pipe", "--bind=" + source, "--",
                ]
            }
        }

        private func words(_ maker: Maker, record: String? = nil) -> [String] {
            Self.words(maker, source: source, host: "127.0.0.1:\(servers[0].port)", record: record)
        }

        private func environment() -> [String: String] { fixture.environment.merging(["HOME": home]) { $1 } }

        /// What the script printed, when it succeeded in the sandbox.
        private func run(_ maker: Maker, _ script: String, record: String? = nil) throws -> Output {
            let starter = try Child(["sleep", "600"])
            defer { starter.kill() }
            let words = ["sh", "-c", "exec 9<\"$1\"; shift; OUTSIDE=secret exec \"$@\"", "sh", source] + words(maker, record: record)
            let program = ["sh", "-c", script, "sh", source, home, "\(starter.pid)"] + servers.map(\.port) + [outside.base]
            for _ in 0..<5 {
                let output = try Command.run(words + program, environment: environment(), within: 60)
                // bubblewrap binds every mount of the machine here. It fails if another test unmounts one meanwhile.
                if output.status == 0 || maker != .bubblewrap || !output.errors.contains("bwrap: ") { return output }
            }
            throw TestFailure("bubblewrap makes no sandbox")
        }

        private func reaches(_ maker: Maker, _ script: String) throws -> Bool {
            try run(maker, "{ \(script); } >/dev/null 2>&1").status == 0
        }

        private func isThere(_ path: String) -> Bool { FileManager.default.fileExists(atPath: path) }

        /// Everything that a program tries in the sandbox, by the titles of the rows.
        private func all(_ maker: Maker) throws -> [String: Bool] {
            var found: [String: Bool] = [:]
            for (title, script) in Self.rows { found[title] = try reaches(maker, script) }
            // A written file may vanish with the sandbox, so it counts only if it is found outside.
            _ = try run(maker, ": >$1/new; echo x >$2/written; echo x >$6/written")
            found["the granted directory, for writing"] = isThere(source + "/new")
            found["a place outside that can be written to"] = isThere(home + "/written") || isThere(outside.base + "/written")
            found["to remove a file without a record of it (`--audit`, `--trace`)"] = try removesUnrecorded(maker)
            let kept = try SandboxHolder(words(maker), source: source, environment: environment())
            for way in SandboxHolder.Way.allCases { #expect(try kept.writes(way), "before anything is taken back, \(way.rawValue)") }
            switch maker {
            case .grantfs, .hosts: try fixture.grantfs("revoke", "docs").orThrow()
            case .bubblewrap, .firejail, .container: try kept.unmountOutside()
            }
            for way in SandboxHolder.Way.allCases { found[way.rawValue] = try kept.writes(way) }
            kept.end()
            return found
        }

        /// Whether a program that makes the system call itself, not by the C library's function, removes a file and is not named.
        private func removesUnrecorded(_ maker: Maker) throws -> Bool {
            let file = source + "/removed"
            let record = outside.base + "/record"
            #expect(FileManager.default.createFile(atPath: file, contents: nil))
            #expect(FileManager.default.createFile(atPath: record, contents: nil))
            let call = "{'x86_64': 263, 'aarch64': 35}[os.uname().machine], -100, (sys.argv[1] + '/removed').encode(), 0"
            let remove = "python3 -c \"import ctypes, os, sys; ctypes.CDLL(None).syscall(\(call))\" $1"
            let output = try run(maker, remove, record: record)
            #expect(output.status == 0 && !isThere(file), "\(maker.rawValue): \(output)")
            return try !String(contentsOfFile: record, encoding: .utf8).contains("/removed")
        }

        private func compare(_ maker: Maker) throws {
            let found = try all(maker).mapValues { $0 ? "yes" : "no" }
            if ReachTable.isRecorded { return try ReachTable.record(found, in: maker.rawValue) }
            let said = try ReachTable.column(maker.rawValue)
            #expect(Set(said.keys) == Set(found.keys), "the rows of the table are what is tried")
            for (title, cell) in found { #expect(said[title] == cell, "\(maker.rawValue): \(title)") }
        }

        @Test("The reach of a program in `grantfs run` is as docs/guides/sandbox.md says", arguments: [Maker.grantfs, .hosts])
        func grantfs(_ maker: Maker) throws { try compare(maker) }

        @Test("The reach of a program in bubblewrap is as docs/guides/sandbox.md says")
        func bubblewrap() throws { try compare(.bubblewrap) }

        /// Whether it can make a sandbox on this machine: some are containers themselves.
        private static func works(_ maker: Maker) -> Bool {
            (try? Command.run(words(maker, source: "/usr/share/doc") + ["true"], within: 30))?.status == 0
        }

        @Test(
            "The reach of a program in firejail is as docs/guides/sandbox.md says",
            .enabled(if: works(.firejail), "firejail is not installed, or cannot make a sandbox here"))
        func firejail() throws { try compare(.firejail) }

        @Test(
            "The reach of a program in a container is as docs/guides/sandbox.md says",
            .enabled(if: works(.container), "systemd-nspawn is not installed, or cannot make a container here"))
        func container() throws { try compare(.container) }
    }
}
