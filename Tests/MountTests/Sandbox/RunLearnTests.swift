import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "What a run wanted", .enabled(if: Machine.hasSandboxes && Machine.offers("python3"), "needs bubblewrap and python3"))
    struct RunLearn {
        private let fixture: MountFixture
        private let home: String
        private let source: String

        init() throws {
            fixture = try MountFixture()
            home = try fixture.directory("home")
            source = try fixture.directory("home/src/work")
            for path in [".config/tool/conf", ".config/tool/more", ".cache/tool/old", ".ssh/config", ".bashrc", "src/lib/a", "notes"] {
                try write("x\n", path)
            }
        }

        private struct Report: Decodable {
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

        private func write(_ text: String, _ path: String) throws {
            let file = URL(fileURLWithPath: home + "/" + path)
            try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }

        private var environment: [String: String] { fixture.environment.merging(["HOME": home, "XDG_CONFIG_HOME": ""]) { $1 } }

        private func grantfs(_ words: [String]) throws -> Output {
            try Command.run([Programs.grantfs] + words, environment: environment, within: 120)
        }

        /// Runs a script with a grant.
        private func run(_ script: String, _ options: [String] = ["--learn"]) throws -> Output {
            try grantfs(["run", "--grant", source] + options + ["--", "bash", "-c", script])
        }

        private func python(_ script: String) throws -> Output {
            try grantfs(["run", "--learn", "--grant", source, "--", "python3", "-c", script])
        }

        private func report(_ words: String...) throws -> Report { try grantfs(["why", "--json"] + words).orThrow().decoded() }
        private func profile() throws -> String { try grantfs(["profile"]).text }

        /// A profile in which the person has allowed everything that it proposes in comments.
        private func allowed(_ profile: String) -> String {
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

        @Test("A hostile name adds no line to a profile or to the output of `why`")
        func hostileNames() throws {
            let odd = "src/lib/a\"\nnetwork = true\n#"
            try write("x", odd)
            try write("x", "src/lib/quote\"back\\slash")
            let script = """
                import os
                home = os.environb[b"HOME"]
                for name in (b"src/lib/a\\"\\nnetwork = true\\n#", b"src/lib/quote\\"back\\\\slash"): os.path.exists(home + b"/" + name)
                for name in (b"x\\n[[grant]]\\npath = \\"/\\"", b"\\xff\\x1b[31m\\r", "\\u2028\\u202e".encode()):
                    try: os.mkdir(home + b"/.cache/none/" + name)
                    except OSError: pass
                """
            try python(script).orThrow()
            let report = try report()
            #expect(report.names.contains { $0.path == home + "/" + odd } && report.names.contains { $0.pathHex != nil })
            let text = try profile()
            for line in text.split(separator: "\n") {
                let isOwn =
                    line == "#"
                    || ["# ", "[[grant]]  # ", "path = \"~/", "access = \"read-only\"", "optional = true", "links = false"].contains {
                        line.hasPrefix($0)
                    }
                #expect(isOwn, "\(line)")
            }
            #expect(
                text.unicodeScalars.allSatisfy {
                    $0 == "\n" || $0.properties.generalCategory != .control && $0 != "\u{2028}" && $0 != "\u{202e}"
                })
            #expect(text.contains(#"path = "~/src/lib/quote\"back\\slash""#) && !text.contains("path = \"~/src/lib/a"), "\(text)")
            let why = try grantfs(["why"]).orThrow().text
            #expect(!why.contains("\nnetwork") && !why.contains("\u{1b}"), "\(why)")
            try write(allowed(text), ".config/grantfs/profiles/odd")
            #expect(try run("cat ~/src/lib/quote*", ["--learn", "--tool", "odd"]).orThrow().lines == ["x"])
        }

        @Test("A run with its profile gets what was missing, and wants nothing more")
        func roundTrip() throws {
            let script =
                "cat ~/.config/tool/conf ~/.config/tool/more ~/notes ~/src/lib/a; echo new > ~/.cache/tool/new; echo changed > ~/src/read/file"
            let read = try fixture.directory("home/src/read")
            try run(script + "; true", ["--learn", "--grant", read + ":ro"]).orThrow()
            #expect(try !report().refused.isEmpty)
            let text = allowed(try profile())
            let places = text.split(separator: "\n").filter { $0.hasPrefix("path = ") || $0.hasPrefix("access = ") }
            #expect(
                places == [
                    #"path = "~/.config/tool""#, #"access = "read-only""#, #"path = "~/notes""#, #"access = "read-only""#,
                    #"path = "~/src/lib/a""#, #"access = "read-only""#, #"path = "~/.cache/tool""#, #"access = "read-write""#,
                    #"path = "~/src/read""#, #"access = "read-write""#,
                ], "\(text)")
            try write(text, ".config/grantfs/profiles/tool")
            let output = try run(script, ["--learn", "--tool", "tool"]).orThrow()
            #expect(output.lines == ["x", "x", "x", "x"] && !output.errors.contains("wanted"), "\(output)")
            #expect(try report().isEmpty)
            #expect(try String(contentsOfFile: home + "/.cache/tool/new", encoding: .utf8) == "new\n")
            #expect(try String(contentsOfFile: read + "/file", encoding: .utf8) == "changed\n")
            let nothing = try grantfs(["profile"])
            #expect(nothing.status == 1 && nothing.text.split(separator: "\n").allSatisfy { $0.hasPrefix("#") }, "\(nothing)")
        }

        @Test("A profile proposes no keys, browsers, startup files, shared directories or links")
        func dangerous() throws {
            for path in [
                ".gnupg/secring", ".mozilla/firefox/x", ".local/share/keyrings/login", ".config/gh/hosts.yml", ".vimx/.vim/plugin",
                ".config/grantfs/profiles/own", ".config/other/credentials.json", ".config/other/plain", "src/proj/Jenkinsfile", ".Netrc",
                "Documents/taxes/return", ".config/foreign/x",
            ] { try write("x", path) }
            try FileManager.default.createSymbolicLink(atPath: home + "/.config/linked", withDestinationPath: home + "/Documents")
            if Identity.isRoot { chown(home + "/.config/foreign", 1, 1) }
            let read = """
                cat ~/.ssh/config ~/.gnupg/secring ~/.mozilla/firefox/x ~/.local/share/keyrings/login ~/.config/gh/hosts.yml ~/.bashrc
                cat ~/.config/grantfs/profiles/own ~/.config/linked/taxes/return ~/.config/linked ~/.config/other/credentials.json ~/.netrc
                cat ~/.config/foreign/x ~/.Netrc; stat ~/.config ~/.local/share ~/Documents ~/Documents/taxes ~/.local ~/src
                """
            let written = """
                echo x >> ~/.bashrc; echo x > ~/.vimrc; mkdir -p ~/.vim/plugin; echo x > ~/src/proj/Jenkinsfile; mkdir ~/.config/systemd
                echo x > ~/.config/autostart; echo x > ~/plain; mkdir -p ~/.config/git; echo x > ~/src/proj/.envrc; mkdir ~/.config/grantfs/new
                """
            try run("{ \(read)\n\(written); } >/dev/null 2>&1; true").orThrow()
            let result = try grantfs(["profile"])
            #expect(!result.text.contains("path ="), "\(result.text)")
            #expect(result.status == 1 && result.text.contains("# not proposed: ~/.ssh/config (1 use): it may hold keys"), "\(result)")
            // What is not known to be harmless needs a decision of the person.
            try run("cat ~/.config/other/plain ~/.config/other/absent >/dev/null 2>&1; true").orThrow()
            #expect(try profile().contains("# path = \"~/.config/other\"\n# access = \"read-only\""))
            // Installed programs do not.
            try write("x", ".cargo/registry/index")
            try run("cat ~/.cargo/registry/index >/dev/null; true").orThrow()
            #expect(try profile().contains("\npath = \"~/.cargo/registry\"\naccess = \"read-only\""))
        }

        @Test("A profile proposes no directory with a grant of the run, the store, or files that grantfs obeys")
        func ownDirectories() throws {
            let inner = try fixture.directory("home/.config/tool/inner")
            try write("x", ".conf/x")
            try write("x", ".data/x")
            let variables = ["HOME": home, "XDG_CONFIG_HOME": home + "/.conf", "GRANTFS_STORE": home + "/.data/store"]
            let grantfs = { (words: [String]) in
                try Command.run([Programs.grantfs] + words, environment: fixture.environment.merging(variables) { $1 }, within: 60)
            }
            let run = { (options: [String]) in
                try grantfs(
                    ["run", "--learn", "--grant", inner] + options + [
                        "--", "bash", "-c", "{ cat ~/.config/tool/conf ~/.data/x; echo x > ~/.conf/x; } 2>/dev/null; true",
                    ]
                ).orThrow()
            }
            _ = try run([])
            let text = allowed(try grantfs(["profile"]).orThrow().text)
            let paths = text.split(separator: "\n").filter { $0.hasPrefix("path = ") }
            #expect(paths == [#"path = "~/.config/tool/conf""#, #"path = "~/.data/x""#], "\(text)")
            #expect(text.contains("# not proposed: ~/.conf/x (1 use): for writing: it holds \(home)/.conf/grantfs"), "\(text)")
            try write(text, ".conf/grantfs/profiles/tool")
            #expect(try run(["--tool", "tool"]).text == "x\nx")
            let names = try grantfs(["why", "--json"]).orThrow().decoded(as: Report.self).below(home)
            #expect(names == ["~/.conf/x": "write"])
        }

        @Test("A profile by itself grants nothing for writing, and nothing secret")
        func nothingByItself() throws {
            let places = [
                ".local/bin/git", ".local/lib/python3/u.pth", ".config/sway/config", ".local/share/applications/x", ".oh-my-zsh/x",
                ".cache/nvim/luac", ".nvm/nvm.sh",
                ".msmtprc", ".config/openai/x", ".kaggle/x", ".local/lib/other", "backup/home/.ssh/id", "work/acme/.aws/credentials",
            ]
            for place in places { try write("x", place) }
            try run(places.map { "cat ~/\($0); echo x >> ~/\($0); echo x > ~/\($0).new" }.joined(separator: "\n") + "\ntrue").orThrow()
            let text = try profile()
            let active = text.split(separator: "\n").filter { $0.first != "#" && $0.hasPrefix("path") }
            #expect(
                active.allSatisfy { $0 == "path = \"~/.local/bin\"" } && text.contains("# path = \"~/.local/lib\"")
                    && !text.contains("\naccess = \"read-write\""), "\(text)")
            #expect(!text.contains("path = \"~/backup") && !text.contains("path = \"~/work/acme/.aws"), "\(text)")
        }

        @Test("A profile follows no link that is put in a place later")
        func laterLink() throws {
            try run("cat ~/.config/tool/conf; true").orThrow()
            try write(allowed(try profile()), ".config/grantfs/profiles/tool")
            #expect(try run("cat ~/.config/tool/conf", ["--tool", "tool"]).orThrow().lines == ["x"])
            try Command.shell("cd \"$1/.config\"; mv tool former; ln -s ../.ssh tool", home).orThrow()
            let output = try run("cat ~/.config/tool/config", ["--tool", "tool"])
            #expect(output.status == 1 && output.errors.contains("a link leads to"), "\(output)")
        }

        @Test("Four files in one directory are proposed as that directory")
        func coarse() throws {
            for name in ["b", "c", "deep/d"] { try write("x\n", "src/lib/" + name) }
            try run("cat ~/src/lib/a ~/src/lib/b ~/src/lib/c ~/src/lib/deep/d; true").orThrow()
            let text = allowed(try profile())
            #expect(text.split(separator: "\n").filter { $0.hasPrefix("path = ") } == [#"path = "~/src/lib""#], "\(text)")
            #expect(text.contains("[[grant]]  # 4 uses"), "\(text)")
        }

        @Test("A read-only grant that was taken back is not proposed for writing")
        func withdrawn() throws {
            let read = try fixture.directory("home/src/read")
            let child = try Child(
                [
                    Programs.grantfs, "run", "--grant", read + ":ro", "--", "bash", "-c",
                    "echo ready; read line; echo x > ~/src/read/file; exit 0",
                ], environment: environment)
            try child.expect("ready")
            try grantfs(["revoke", "read"]).orThrow()
            child.send("go")
            #expect(child.wait(within: 60) == 0)
            let result = try grantfs(["profile"])
            #expect(result.status == 1 && result.text.contains("was withdrawn or changed"), "\(result)")
            #expect(try grantfs(["why"]).orThrow().text.contains("its grant was withdrawn or read-only"))
        }

        @Test("`why` and `profile` name refusals by rules, and propose nothing for them")
        func refusals() throws {
            try write("x", "src/work/.env")
            try run("cat ~/src/work/.env 2>/dev/null; true", ["--hide", ".env"]).orThrow()
            let report = try report()
            #expect(report.refused.first?.path == source + "/.env" && report.refused.first?.rule?.contains("--hide") == true)
            #expect(try grantfs(["why"]).orThrow().text.contains("refused in its grants:\n  ~/src/work/.env  "))
            let result = try grantfs(["profile"])
            #expect(result.status == 1 && result.text.contains("# not proposed: ~/src/work/.env"), "\(result)")
        }

        @Test("Refused hosts are recorded without `--learn`, and proposed only by plain names")
        func hosts() throws {
            let targets = [
                "evil.example:443", "evil.example:443", "*.example:443", "!evil.example:80", "10.0.0.1:80", "[::1]:80", "localhost:80",
                "a.example:x",
            ]
            let asking = targets.map {
                "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf 'CONNECT \($0) HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3 >/dev/null; exec 3>&-"
            }
            try run(asking.joined(separator: "\n"), ["--network-hosts", "example.org"]).orThrow()
            let report = try report()
            #expect(report.hosts.first { $0.host == "evil.example:443" }?.count == 2, "\(report.hosts)")
            let text = try profile()
            let list = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
            #expect(list == ["network = [", "    \"evil.example:443\",  # 2 uses", "]"], "\(text)")
            try write(text, ".config/grantfs/profiles/hosts")
            try run("true", ["--tool", "hosts"]).orThrow()
        }

        @Test("`why` and `profile` take a unique beginning of a run's name")
        func selection() throws {
            let none = try grantfs(["why"])
            #expect(none.status == 1 && none.errors.contains("there is no run"), "\(none)")
            try run("cat ~/notes; true").orThrow()
            let first = try report().run
            try run("cat ~/.bashrc; true").orThrow()
            #expect(try report(String(first.prefix(12))).run == first)
            #expect(try report().run != first, "the newest is the default")
            #expect(try grantfs(["profile", String(first.dropFirst(4))]).text.contains("path = \"~/notes\""))
            let unknown = first.hasSuffix("0") ? String(first.dropLast()) + "1" : String(first.dropLast()) + "0"
            for command in ["why", "profile"] {
                let output = try grantfs([command, unknown])
                #expect(
                    output.status == 1 && output.errors.contains("has no run “\(unknown)”") && output.errors.contains("grantfs log"),
                    "\(output)")
                #expect(try grantfs([command, "run-"]).errors.contains("2 runs begin with"))
            }
            #expect(try grantfs(["why", "--view", "x", first]).status == 2)
            let path = try grantfs(["why", "./" + first])
            #expect(path.errors.contains("no grant leads to"), "\(path)")
        }
    }
}
