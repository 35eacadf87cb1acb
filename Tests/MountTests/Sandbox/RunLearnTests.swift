import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "What a run wanted", .enabled(if: Machine.hasSandboxes && Machine.offers("python3"), "needs bubblewrap and python3"))
    struct RunLearn {
        let fixture: MountFixture
        let home: String
        let source: String

        init() throws {
            fixture = try MountFixture()
            home = try fixture.directory("home")
            source = try fixture.directory("home/src/work")
            for path in [".config/tool/conf", ".config/tool/more", ".cache/tool/old", ".ssh/config", ".bashrc", "src/lib/a", "notes"] {
                try write("x\n", path)
            }
        }

        struct Report: Decodable {
            struct Name: Decodable {
                let path: String
                let pathHex: String?
                let access: String
                let count: Int
            }
            struct Refused: Decodable {
                let path: String?
                let rule: String?
                let count: Int
            }
            struct Host: Decodable {
                let host: String
                let reason: String
                let count: Int
            }
            let run: String
            let names: [Name]
            let otherLookups: Int
            let refused: [Refused]
            let hosts: [Host]

            /// The names below a home, each with its access.
            func below(_ home: String) -> [String: String] {
                Dictionary(names.map { ($0.path.replacingOccurrences(of: home + "/", with: "~/"), $0.access) }) { $1 }
            }
            var isEmpty: Bool { names.isEmpty && refused.isEmpty && hosts.isEmpty && otherLookups == 0 }
        }

        func write(_ text: String, _ path: String) throws {
            let file = URL(fileURLWithPath: home + "/" + path)
            try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }

        var environment: [String: String] { fixture.environment.merging(["HOME": home, "XDG_CONFIG_HOME": ""]) { $1 } }

        func grantfs(_ words: [String]) throws -> Output {
            try Command.run([Programs.grantfs] + words, environment: environment, within: 120)
        }

        /// Runs a script with a grant.
        func run(_ script: String, _ options: [String] = ["--learn"]) throws -> Output {
            try grantfs(["run", "--grant", source] + options + ["--", "bash", "-c", script])
        }

        func python(_ script: String) throws -> Output {
            try grantfs(["run", "--learn", "--grant", source, "--", "python3", "-c", script])
        }

        func report(_ words: String...) throws -> Report { try grantfs(["why", "--json"] + words).orThrow().decoded() }
        func profile() throws -> String { try grantfs(["profile"]).text }

        /// A profile in which the person has allowed everything that it proposes in comments.
        func allowed(_ profile: String) -> String {
            let lines = profile.components(separatedBy: "\n").map { line in
                ["[[grant]]", "path =", "access =", "optional =", "links ="].contains { line.hasPrefix("# " + $0) }
                    ? String(line.dropFirst(2)) : line
            }
            return lines.joined(separator: "\n")
        }

        @Test("`run --learn` records names outside of the grants, however they are looked up")
        func names() throws {
            let script = """
                cat ~/.config/tool/conf ~/.config/tool/conf ~/.config/tool/missing
                cd ~; stat .config/../src/lib/a; cat ~/src/work/file /usr/bin/nothing; ~/notes
                python3 -c 'import os; d = os.open("/", os.O_PATH); os.chdir("/usr"); os.access(os.environ["HOME"][1:] + "/.ssh/config", 0, dir_fd=d)'
                mkdir -p ~/.cache/new/deep; echo y > ~/.cache/tool/old
                """
            let output = try run("{ \(script); } >/dev/null 2>&1; true").orThrow()
            #expect(output.errors.contains("outside of its grants: grantfs why run-"), "\(output)")
            let report = try report()
            let expected = [
                "~/.config/tool/conf": "read", "~/src/lib/a": "read", "~/notes": "read", "~/.ssh/config": "read",
            ]
            let found = report.below(home)
            for (name, access) in expected { #expect(found[name] == access, "\(name): \(found)") }
            #expect(found["~/.cache/new/deep"] != nil && found["~/.cache/tool/old"] != nil, "\(found)")
            #expect(found["~/.config/tool/missing"] == nil && found["~/src/work/file"] == nil, "\(found)")
            #expect(found.keys.allSatisfy { $0.hasPrefix("~/") }, "\(found)")
            #expect(report.names.first { $0.path.hasSuffix("/conf") }?.count == 2)
            let text = try grantfs(["why", report.run]).orThrow().text
            #expect(text.contains("  ~/.config/tool/conf  2 times\n") && text.contains("  ~/.cache/tool/old  "), "\(text)")
            let log = try grantfs(["log", "--view", report.run]).orThrow().text
            #expect(log.contains("wanted in view \(report.run) \(home)/notes for reading"), "\(log)")
            #expect(try !grantfs(["log"]).orThrow().text.contains("wanted"), "the log of everything has one line for a run")
        }

        @Test("Without `--learn` a run has no second filter and records no names")
        func without() throws {
            let script = "cat ~/notes 2>/dev/null; grep Seccomp_filters /proc/self/status"
            let (plain, learning) = (try run(script, []).orThrow(), try run(script).orThrow())
            #expect(plain.lines == ["Seccomp_filters:\t1"] && learning.lines == ["Seccomp_filters:\t2"], "\(plain) \(learning)")
            try run("cat ~/notes 2>/dev/null; true", []).orThrow()
            #expect(try report().isEmpty)
        }

        @Test("The home of a run is found by a link as well")
        func linkedHome() throws {
            let link = fixture.base + "/linked"
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: home)
            let variables = fixture.environment.merging(["HOME": link, "XDG_CONFIG_HOME": ""]) { $1 }
            let script = "cat ~/notes \(home)/.bashrc 2>/dev/null; true"
            try Command.run(
                [Programs.grantfs, "run", "--learn", "--grant", source, "--", "sh", "-c", script], environment: variables, within: 60
            ).orThrow()
            #expect(try report().below(home) == ["~/notes": "read", "~/.bashrc": "read"])
        }

        @Test("The exit status and signals are those of a run without `--learn`")
        func ends() throws {
            #expect(try run("exit 7").status == 7)
            #expect(try run("kill -TERM $$").status == 128 + SIGTERM)
            #expect(try grantfs(["run", "--learn", "--grant", source, "--", "/nowhere/program"]).status == 127)
            let child = try Child(
                [
                    Programs.grantfs, "run", "--learn", "--grant", source, "--", "bash", "-c",
                    "trap 'exit 9' TERM; echo ready; while :; do stat ~ >/dev/null; done",
                ],
                environment: environment)
            try child.expect("ready")
            kill(child.pid, SIGTERM)
            #expect(child.wait(within: 60) == 9)
        }

        @Test("A killed run leaves no process that waits for its observer")
        func killed() throws {
            let mark = "learn-\(UUID().uuidString)"
            let child = try Child(
                [
                    Programs.grantfs, "run", "--learn", "--grant", source, "--", "bash", "-c",
                    "echo ready; while :; do /usr/bin/stat ~ >/dev/null; done", mark,
                ], environment: environment)
            try child.expect("ready")
            child.kill()
            try fixture.wait(until: "no process of the run is left", within: 60) {
                let all = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
                return !all.contains { Processes.kernelText("/proc/\($0)/cmdline").contains(mark) }
            }
        }

        @Test(
            "A plain user's run records names as well",
            .enabled(if: Machine.usersCanMount && Identity.isRoot, "needs root, and plain users that can mount"))
        func plainUser() throws {
            let user = try #require(Machine.plainUser)
            let own = try MountFixture(owner: user)
            let home = try own.directory("home")
            let variables = own.environment.merging(["HOME": home, "XDG_CONFIG_HOME": ""]) { $1 }
            let words = { (words: [String]) in
                try Command.run([Programs.grantfs(in: variables, for: user)] + words, as: user, environment: variables, within: 60)
            }
            try Command.shell("mkdir -p \"$1/.config/tool\"; echo x > \"$1/.config/tool/conf\"", home, as: user).orThrow()
            let script = "cat ~/.config/tool/conf 2>/dev/null; exit 4"
            #expect(try words(["run", "--learn", "--grant", try own.source("work"), "--", "sh", "-c", script]).status == 4)
            #expect(try words(["why", "--json"]).orThrow().decoded(as: Report.self).below(home) == ["~/.config/tool/conf": "read"])
            #expect(try words(["profile"]).orThrow().text.contains("path = \"~/.config/tool\""))
            // A program of another user that may not be read may not be inspected either.
            let tools = try own.directory("tools")
            try Command.shell("cp /bin/cat \"$1\"; chmod 0111 \"$1/cat\"", tools).orThrow()
            let output = try words([
                "run", "--learn", "--grant", try own.source("work"), "--ro-bind", tools, "--", tools + "/cat", home + "/.config/tool/conf",
            ])
            #expect(output.status == 1 && output.errors.contains("names were not learnt"), "\(output)")
        }

        @Test("Ten thousand names leave at most 500 entries, and the rest is counted")
        func bounded() throws {
            let script = """
                import os
                home = os.environ["HOME"]
                for number in range(10000):
                    try: os.mkdir(home + "/none/%d" % number)
                    except OSError: pass
                """
            let long = try python(
                "import os\nfor n in range(500):\n  try: os.mkdir(os.environ['HOME'] + '/none/%d' % n + '/x' * 1800)\n  except OSError: pass"
            )
            #expect(long.status == 0)
            let bytes = try report().names.reduce(0) { $0 + $1.path.utf8.count }
            #expect(bytes <= 256 << 10 && bytes > 200 << 10)
            try python(script).orThrow()
            let report = try report()
            let made = report.names.filter { $0.path.contains("/none/") }
            #expect(report.names.count == 500 && made.count <= 500 && report.otherLookups + made.count >= 10000, "\(report.otherLookups)")
            let text = try grantfs(["why"]).orThrow().text
            #expect(text.contains(" more that were only counted") && text.split(separator: "\n").count < 60, "\(text)")
        }

        @Test("Bad addresses and processes that end at once do not disturb the observer")
        func oddProcesses() throws {
            let script = """
                import ctypes, mmap, os, sys
                libc = ctypes.CDLL(None, use_errno=True)
                home = os.environ["HOME"].encode()
                for address in (0, 1, 2**63, 2**64 - 1): libc.access(ctypes.c_void_p(address), 0)
                # A name that ends with its page, and one that goes on into the next, which is missing.
                two = mmap.mmap(-1, 8192)
                start = ctypes.addressof(ctypes.c_char.from_buffer(two))
                name = home + b"/notes\\0"
                two[4096 - len(name):4096] = name
                libc.munmap(ctypes.c_void_p(start + 4096), 4096)
                print(libc.access(ctypes.c_void_p(start + 4096 - len(name)), 0), libc.access(ctypes.c_void_p(start + 4095), 0))
                ctypes.memset(start, 65, 4096)
                print(libc.access(ctypes.c_void_p(start), 0))
                libc.access(b"a" * 5000, 0)
                for fd in (-1, 0, 99): libc.faccessat(fd, b"x", 0, 0)
                for _ in range(200):
                    child = os.fork()
                    if child == 0: os.execv("/bin/true", ["true"])
                    os.kill(child, 9); os.waitpid(child, 0)
                libc.prctl(4, 0, 0, 0, 0)
                print(libc.access(home + b"/.bashrc", 0))
                sys.stdout.flush(); os._exit(5)
                """
            let output = try python(script)
            #expect(output.status == 5 && output.lines == ["-1 -1", "-1", "-1"], "\(output)")
            #expect(try report().below(home)["~/notes"] == "read")
        }

        #if arch(x86_64)
            @Test("Calls of another architecture do the same as without `--learn`")
            func otherArchitectures() throws {
                // getpid(2) of 32-bit programs, which may be missing in the kernel, and of x32 ones.
                let script = """
                    import ctypes, mmap, os, sys
                    for code in (b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3", b"\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3"):
                        if os.fork() == 0:
                            place = mmap.mmap(-1, 4096, prot=7)
                            place.write(code)
                            call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(place)))
                            os._exit(0 if call() == os.getpid() else 1)
                        print(os.wait()[1])
                    """
                let plain = try grantfs(["run", "--grant", source, "--", "python3", "-c", script]).orThrow()
                #expect(try python(script).orThrow().lines == plain.lines)
            }
        #endif
    }
}
