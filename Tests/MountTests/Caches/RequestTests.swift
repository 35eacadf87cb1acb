import Foundation
import TestSupport
import Testing

extension MountTests {
    /// How many requests each workload takes: one more is a slower filesystem, and is noticed here. Nothing is timed.
    @Suite(.enabled(if: Command.exists("python3"), Comment(rawValue: Machine.needs("python3"))))
    struct Requests {
        /// Python code below a grant with ten files of 6,000 bytes, a directory of ten and a database, and its requests with a warm
        /// cache, by mode. The kernel's FORGETs come at any time and are not counted.
        struct Workload: Sendable, CustomTestStringConvertible {
            let name: String
            let script: String
            let expected: [String: String]
            /// Requests that kernels before or after 6.18 send instead under cache=shared, as seen
            /// on 6.12 and 7.2.
            var before: String?
            var after: String?
            var testDescription: String { name }

            func allows(_ seen: String, _ expected: String) -> Bool {
                seen == expected || (Machine.kernel < (6, 18) && seen == before) || (Machine.kernel > (6, 18) && seen == after)
            }
        }

        static let workloads: [Workload] = [
            Workload(
                name: "open, read, close of ten files",
                script: "for f in F:\n d = os.open(f, os.O_RDONLY); os.read(d, 9000); os.close(d)",
                expected: [
                    "shared": "FLUSH 10 OPEN 10 RELEASE 10", "exclusive": "",
                    "none": "FLUSH 10 GETATTR 30 LOOKUP 10 OPEN 10 READ 10 RELEASE 10",
                ]),
            Workload(
                name: "stat of ten files", script: "for f in F: os.stat(f)",
                expected: ["shared": "", "exclusive": "", "none": "GETATTR 20 LOOKUP 10"]),
            Workload(
                name: "a listing with the attributes of ten files", script: "for e in os.scandir('e'): e.stat()",
                expected: [
                    "shared": "OPENDIR 1 RELEASEDIR 1", "exclusive": "",
                ]),
            Workload(
                name: "find",
                script: "subprocess.run(['find', 'e', '-printf', '%s'], stdout=subprocess.DEVNULL)",
                expected: ["shared": "OPENDIR 2 RELEASEDIR 2 STATFS 1", "exclusive": "STATFS 1"]),
            Workload(
                name: "ten reads of a link", script: "for i in range(10): os.readlink('link')",
                expected: ["shared": "", "exclusive": ""]),
            Workload(
                name: "create, write, close and unlink of ten files",
                script: """
                    for i in range(10):
                     d = os.open('new', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644); os.write(d, b'x'); os.close(d); os.unlink('new')
                    """,
                expected: ["shared": "CREATE 10 FLUSH 10 GETATTR 20 LOOKUP 10 RELEASE 10 UNLINK 10 WRITE 10"],
                // Whether the new file has capabilities, before the first write.
                before: "CREATE 10 FLUSH 10 GETATTR 20 GETXATTR 10 LOOKUP 10 RELEASE 10 UNLINK 10 WRITE 10",
                after: "CREATE 10 FLUSH 10 LOOKUP 10 RELEASE 10 UNLINK 10 WRITE 10"),
            Workload(
                name: "twenty writes of 4 KiB",
                script: "d = os.open('f0', os.O_WRONLY)\nfor i in range(20): os.pwrite(d, b'z' * 4096, i * 4096)\nos.close(d)",
                expected: [
                    "shared": "FLUSH 1 OPEN 1 RELEASE 1 WRITE 20", "exclusive": "SETATTR 1 WRITE 1",
                ]),
            Workload(
                // From whole pages: what begins within one lies in 257, and a request has room for 256.
                name: "four writes of 1 MiB",
                script: """
                    import mmap
                    d = os.open('f1', os.O_WRONLY)
                    for i in range(4): os.pwrite(d, mmap.mmap(-1, 1 << 20), 0)
                    os.close(d)
                    """,
                expected: ["shared": "FLUSH 1 OPEN 1 RELEASE 1 WRITE 4", "exclusive": "SETATTR 1 WRITE 1"]),
            Workload(
                name: "twenty appended lines",
                script: "d = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\nfor i in range(20): os.write(d, b'line')\nos.close(d)",
                expected: ["shared": "FLUSH 1 OPEN 1 RELEASE 1 WRITE 20"]),
            Workload(
                name: "five renames there and back", script: "for i in range(5): os.rename('f8', 'other'); os.rename('other', 'f8')",
                expected: ["shared": "GETATTR 10 LOOKUP 10 RENAME 10"], after: "LOOKUP 10 RENAME 10"),
            Workload(
                name: "untar of ten files",
                script: "subprocess.run(['tar', '-xf', '../../outside/d.tar', '-C', tempfile.mkdtemp(dir='.')], check=True)",
                expected: [
                    "shared":
                        "CREATE 10 FLUSH 10 GETATTR 11 GETXATTR 10 LOOKUP 12 MKDIR 2 OPENDIR 1 RELEASE 10 RELEASEDIR 1 SETATTR 33 WRITE 10"
                ], after: "CREATE 10 FLUSH 10 GETXATTR 10 LOOKUP 12 MKDIR 2 OPENDIR 1 RELEASE 10 RELEASEDIR 1 SETATTR 33 WRITE 10"),
            Workload(
                // As long as no other process has it open. Only root's daemons can know that.
                name: "ten transactions of SQLite", script: "for i in range(10): base.execute('insert into t values(1)')",
                expected: ["shared": Identity.isRoot ? "SETLK 60 WRITE 30" : "READ 40 SETLK 60 WRITE 60", "exclusive": ""]),
            Workload(
                name: "ten transactions of SQLite on a database that is open on the host",
                script: "for i in range(10): base.execute('insert into t values(1)')",
                expected: ["shared": "READ 40 SETLK 60 WRITE 60"]),
        ]

        /// Reads scripts, each with how often, and does what they say.
        private static let server = """
            import json, os, sqlite3, subprocess, sys, tempfile
            os.chdir(sys.argv[1])
            F = [f'f{i}' for i in range(10)]
            if sys.argv[2] == 'with a database':
                base = sqlite3.connect('base.sqlite', isolation_level=None)
                for what in 'pragma journal_mode=wal', 'pragma synchronous=normal', 'create table if not exists t(a)': base.execute(what)
            print('ready', flush=True)
            for line in sys.stdin:
                times, script = json.loads(line)
                for _ in range(times): exec(script)
                print('done', flush=True)
            """

        /// Has a database's files open on the host.
        private static func opened(_ database: String) throws -> Child {
            let script = """
                import sys
                files = [open(sys.argv[1] + end, 'rb') for end in ('', '-wal', '-shm')]
                print('open', flush=True)
                sys.stdin.read()
                """
            let child = try Child(["python3", "-I", "-c", script, database])
            try child.expect("open")
            return child
        }

        private static let prepare = """
            cd "$1"; mkdir d e; touch e/0 e/1 e/2 e/3 e/4 e/5 e/6 e/7 e/8 e/9; for i in $(seq 0 9); do head -c 6000 /dev/zero > f$i; echo $i > d/file$i; done; ln -s f0 link; touch log
            touch -d '2001-01-01' d/*; tar -C . -cf "$2/d.tar" d
            """

        @Test("Each workload takes the expected number of requests", arguments: ["shared", "exclusive", "none"])
        func counts(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.shell(Self.prepare, source, fixture.base + "/outside").orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=\(cache)") + "/a"
            // Where a directory has a link for each directory in it, find(1) asks what filesystem that is, and may know earlier that there are no more.
            let linksAreCounted = try Command.run(["stat", "-c", "%h", source]).trimmed != "1"
            for workload in Self.workloads {
                guard var expected = workload.expected[cache] else { continue }
                if !linksAreCounted { expected = expected.replacingOccurrences(of: " STATFS 1", with: "") }
                let database = workload.name.contains("SQLite") ? "with a database" : ""
                let server = try Child(["python3", "-I", "-c", Self.server, mount, database])
                try server.expect("ready", within: 60)
                let host = workload.name.contains("on the host") ? try Self.opened(source + "/base.sqlite") : nil
                defer { host?.kill() }
                var seen: [String] = []
                // A warm cache grows cold within a second under cache=shared, so there are several
                // tries. On a busy machine a run with a cold cache counts.
                while !seen.contains(where: { workload.allows($0, expected) }), seen.count < 8 {
                    seen.append(try cost(of: workload.script, server, fixture, milliseconds: seen.count < 3 ? 0 : 1_100))
                }
                #expect(seen.contains { workload.allows($0, expected) }, "\(cache), \(workload.name): \(Set(seen))")
            }
        }

        /// The requests of doing it once, warm, as text in the order of the alphabet: half the difference between four times and two.
        private func cost(of script: String, _ server: Child, _ fixture: MountFixture, milliseconds: Int) throws -> String {
            let two = try requests(of: 2, script, server, fixture, milliseconds)
            let four = try requests(of: 4, script, server, fixture, milliseconds)
            return Set(two.keys).union(four.keys).sorted().compactMap { kind in
                let difference = four[kind, default: 0] - two[kind, default: 0]
                return difference == 0 ? nil : "\(kind) " + (difference % 2 == 0 ? "\(difference / 2)" : "\(difference)/2")
            }.joined(separator: " ")
        }

        private func requests(
            of times: Int, _ script: String, _ server: Child, _ fixture: MountFixture, _ milliseconds: Int
        ) throws -> [String: Int] {
            let before = try settled(fixture)
            pause(milliseconds: milliseconds)
            let text = String(decoding: try JSONEncoder().encode(script), as: UTF8.self)
            server.send("[\(times), \(text)]")
            try server.expect("done", within: 60)
            return try settled(fixture).merging(before, uniquingKeysWith: -)
        }

        /// All requests until now, once RELEASEs that were on their way have come.
        private func settled(_ fixture: MountFixture) throws -> [String: Int] {
            var last: [String: Int] = [:]
            for _ in 0..<20 {
                let now = try fixture.requests().filter { !$0.key.contains("FORGET") }
                if now == last { break }
                last = now
                pause(milliseconds: 30)
            }
            return last
        }
    }
}
