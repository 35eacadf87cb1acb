import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("Programs in a sandbox", .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunInASandbox {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try Data("granted\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        /// Runs a script in the sandbox, with these options.
        private func run(_ script: String, _ options: String..., as identity: Identity? = nil, within seconds: Double = 30) throws -> Output
        {
            try fixture.grantfs(["run"] + options + ["--", "sh", "-c", script], as: identity, within: seconds)
        }

        /// What a throw-away view leaves when it is gone: nothing.
        private func expectNothingLeft(_ when: String) throws {
            #expect(try fixture.list("--all").isEmpty, "no grant is on record \(when)")
            #expect(fixture.mountpoints.isEmpty, "the kernel has no mount \(when)")
            try expectNoDaemon()
            let left = (try? FileManager.default.contentsOfDirectory(atPath: fixture.store + "/run")) ?? []
            #expect(left.isEmpty, "no file is left \(when)")
        }

        /// A daemon notices the end of its mount a moment later. An unmount waits two seconds for
        /// that.
        private func expectNoDaemon() throws {
            try fixture.wait(until: "no daemon is left", within: 30) { try fixture.status().mounts.isEmpty }
        }

        @Test("A sandbox shows the view and no other files of users")
        func nothingElse() throws {
            let secret = fixture.base + "/outside/secret"
            try Data("secret".utf8).write(to: URL(fileURLWithPath: secret))
            let output = try run(
                """
                cat docs/file; pwd
                cat \(secret) 2>/dev/null && echo LEAK path
                ls /home /srv /mnt /media /boot /sys /var/lib 2>/dev/null | grep . && echo LEAK directory
                find "$HOME" /tmp /var/tmp /run -mindepth 1 ! -path '/run/user*' |
                    while read -r f; do case $HOME/:\(source)/ in "$f"/*|*:"$f"/*) ;; *) echo "$f" ;; esac; done |
                    grep -v '^\(source)/' | grep . && echo LEAK private
                for f in /x /usr/x /etc/x; do touch $f 2>/dev/null && echo LEAK writable $f; done
                find /proc -maxdepth 6 ! -path '/proc/[0-9]*' ! -path '/proc/self*' ! -path '/proc/thread-self*' -type f -writable | grep . && echo LEAK switch
                grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo LEAK capability
                unshare -U true 2>/dev/null && echo LEAK namespace
                cat /proc/[0-9]*/environ | grep -az OUTSIDE && echo LEAK environment
                cat /proc/[0-9]*/cmdline | grep -a 'run/run[-]' && echo LEAK store
                ls /proc | grep -c '^[0-9]' > /tmp/n; [ $(cat /tmp/n) -gt 6 ] && echo LEAK processes
                ls /proc/self/fd /proc/1/fd | grep -w 9 && echo LEAK descriptor
                ip link 2>/dev/null | grep -v LOOPBACK | grep mtu && echo LEAK network
                touch /tmp/own "$HOME/own" && rm /tmp/own "$HOME/own" && echo private
                exit 7
                """, "--grant", source, "--env", "GIVEN=1")
            #expect(output.status == 7, "the exit status is the program's")
            #expect(output.lines == ["granted", "/grants", "private"], "\(output)")
            try expectNothingLeft("after it has ended")
        }

        /// Beside a terminal or a bind another program begins it.
        @Test("A missing or unusable program exits with the status that a shell gives", arguments: [false, true])
        func noProgram(withBind: Bool) throws {
            let more = withBind ? ["--ro-bind", try fixture.directory("tools")] : []
            for (program, status) in [("/nowhere/program", 127), ("nosuchprogram", 127)] as [(String, Int32)] {
                let output = try fixture.grantfs(["run", "--grant", source] + more + ["--", program])
                #expect(output.status == status && output.errors.contains("--grant, --ro-bind and --tool"), "\(output)")
            }
            try "no program".write(toFile: source + "/text", atomically: false, encoding: .utf8)
            for program in [source + "/text", source] {
                #expect(try fixture.grantfs(["run", "--grant", source] + more + ["--", program]).status == 126, "\(program)")
            }
            let output = try fixture.grantfs(["run", "--grant", source] + more + ["--", "sh", "-c", "exit 1"])
            #expect(output.status == 1 && output.errors.isEmpty, "\(output)")
            try expectNothingLeft("after none was begun")
        }

        @Test("A read-only grant inside a writable one is refused in any order")
        func nestedReadOnly() throws {
            let inner = try fixture.directory("source/docs/hooks")
            for grants in [[source, inner + ":ro"], [inner + ":ro", source]] {
                let output = try fixture.grantfs(
                    ["run"] + grants.flatMap { ["--grant", $0] } + ["--", "touch", inner + "/file"])
                #expect(output.status == 2 && output.errors.contains("cannot be granted read-only"), "\(output)")
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: inner).isEmpty)
        }

        @Test("A sandbox of root hides files of /etc that only root may read", .enabled(if: Identity.isRoot, "needs root"))
        func rootsFiles() throws {
            let output = try run("ls /etc/shadow /etc/gshadow /etc/sudoers /etc/passwd 2>/dev/null", "--grant", source)
            #expect(output.lines == ["/etc/passwd"], "\(output)")
        }

        @Test("A program starts after its daemon is confined and has a keeper")
        func confinedBefore() throws {
            // In the place of bwrap: stops the daemon, checks whether it may go on nevertheless,
            // and waits as bwrap does.
            let programs = try fixture.directory("programs")
            let script = """
                #!/bin/sh
                exec 8<&6; read -r daemon others < /proc/$PPID/task/$PPID/children
                kill -STOP "$daemon"
                echo '{"child-pid": 99999999}' >&3
                filters() { sed -n 's/^Seccomp:.//p' "/proc/$daemon/status"; }
                timeout 0.5 cat <&8 && [ "$(filters)" = 0 ] && echo LEAK
                kill -CONT "$daemon"
                cat <&8 >/dev/null 2>&1 || exit 1
                filters; ps -o args= --ppid "$daemon" | cut -d ' ' -f 1,2
                """
            try Command.writeProgram(script, to: programs + "/bwrap")
            for _ in 0..<5 {
                let output = try Command.shell(
                    "PATH=\"$1:$PATH\" exec \"$2\" run --store \"$3\" --grant \"$4\" -- true", programs,
                    Programs.grantfs(for: fixture.owner), fixture.store, source, as: fixture.owner)
                #expect(output.lines == ["2", "grantfs keeper"], "\(output)")
            }
        }

        @Test("A sandbox of root shows the public files of /etc", .enabled(if: Identity.isRoot, "needs root"))
        func publicFiles() throws {
            let script =
                "cat /etc/passwd; stat -c '%a %F' /etc/passwd /etc/group; grep -c ' /etc/passwd ' /proc/self/mountinfo; touch /etc/passwd"
            let output = try run(script, "--grant", source)
            let passwd = try String(contentsOfFile: "/etc/passwd", encoding: .utf8)
            #expect(output.text.hasPrefix(passwd), "\(output)")
            #expect(output.lines.suffix(3) == ["644 regular file", "644 regular file", "0"] && output.status != 0, "\(output)")
        }

        @Test("A program inherits no descriptor and only given variables")
        func inheritance() throws {
            let output = try Command.shell(
                "exec 9<\"$1\"; OUTSIDE=secret exec \"$2\" run --store \"$3\" --grant \"$4\" --env GIVEN=yes -- sh -c \"$5\"",
                fixture.base, Programs.grantfs, fixture.store, source,
                "ls /proc/self/fd; cat /proc/*/environ | tr '\\0' '\\n' | grep -e OUTSIDE -e GIVEN | sort -u", as: fixture.owner)
            #expect(output.lines == ["0", "1", "2", "3", "GIVEN=yes"], "3 is the listing's own: \(output)")
        }

        @Test("A sandbox has only a loopback, and the machine's network with `--network`")
        func network() throws {
            let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/ns/net")
            let without = try run("readlink /proc/self/ns/net; tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '", "--grant", source)
            #expect(without.lines.last == "lo" && without.lines.count == 2 && without.lines.first != own, "\(without)")
            #expect(try run("readlink /proc/self/ns/net", "--grant", source, "--network").lines == [own])
        }

        @Test("A program writes through the view but not below a read-only grant")
        func access() throws {
            let other = try fixture.source("other")
            let output = try run(
                "echo new > docs/new; echo new > other/new; echo $?", "--grant", source, "--grant", other + ":ro", "--at", "/tmp/a/view")
            #expect(output.trimmed.hasSuffix("2") && output.errors.contains("Read-only"), "\(output)")
            #expect(FileManager.default.contents(atPath: source + "/new") == Data("new\n".utf8))
            #expect(!FileManager.default.fileExists(atPath: other + "/new"))
        }

        private static let reader =
            "exec 5<docs/file; echo ready; while read -r line; do read -r x <&5 2>/dev/null; cat docs/file; echo done; done"

        @Test("A running program gets EACCES from a revoked view", arguments: [false, true])
        func revoked(throwAway: Bool) throws {
            if !throwAway { try fixture.grant(source) }
            let program = try Child(
                [Programs.grantfs, "run"] + (throwAway ? ["--grant", source] : []) + ["--", "sh", "-c", Self.reader + " 2>&1"],
                environment: fixture.environment)
            try program.expect("ready")
            program.send("once")
            try program.expect("granted")
            try program.expect("done")
            #expect(try fixture.list().map(\.name) == ["docs"])
            #expect(try fixture.revoke("docs").allSatisfy(\.isConfirmed))
            program.send("twice")
            let line = try #require(program.line())
            #expect(line.contains("Permission denied"), "\(line)")
            try program.expect("done")
            program.closeInput()
            #expect(program.wait(within: 30) == 0, "it ends by itself")
            if throwAway { try expectNothingLeft("after a revocation") }
        }

        /// SQLite drops a log from its first damaged page on, and copies of a store are made of its database.
        @Test("A run leaves no log beside the store's database")
        func storeFiles() throws {
            try fixture.grant(try fixture.source("kept"))
            let files = { Set(try FileManager.default.contentsOfDirectory(atPath: fixture.store)) }
            let before = try files()
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--", "sh", "-c", "echo ready; read x; true"], environment: fixture.environment
            )
            try program.expect("ready")
            #expect(try fixture.revoke("kept", "docs").count == 2)
            let copy = try fixture.directory("copy")
            try Command.shell(
                "cp -p \"$1\"/grants.sqlite \"$1\"/key \"$2\" && chmod 700 \"$2\"", fixture.store, copy, as: fixture.owner
            ).orThrow()
            let copied: [GrantDocument] = try fixture.grantfs("list", "--store", copy, "--all", "--json").orThrow().decoded()
            #expect(!copied.isEmpty && copied.allSatisfy { $0.state == "revoked" }, "\(copied)")
            program.closeInput()
            #expect(program.wait(within: 30) == 0)
            #expect(try files() == before)
            #expect(try fixture.list("--all").map(\.state) == ["revoked"])
            for _ in 0..<20 {
                try run("true", "--grant", source).orThrow()
                #expect(try files() == before)
            }
        }

        @Test("A run with a missing directory creates no store")
        func noStore() throws {
            #expect(try run("true", "--grant", source + "/absent").status == 1)
            #expect(try run("true", "--grant", source, "--grant", source + "/absent").status == 1)
            #expect(!FileManager.default.fileExists(atPath: fixture.store))
        }

        @Test("A run uses the mount of an existing view, or its own")
        func mounts() throws {
            try fixture.grant(source)
            let counting = "grep -c fuse.grantfs /proc/self/mountinfo"
            #expect(try run(counting).trimmed == "1")
            #expect(fixture.mountpoints.isEmpty)
            try expectNoDaemon()
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            let program = try Child([Programs.grantfs, "run", "--", "sh", "-c", "echo ready; read x"], environment: fixture.environment)
            try program.expect("ready")
            #expect(try fixture.status().mounts.map(\.pid) == [daemon], "there is no second mount")
            program.closeInput()
            #expect(program.wait(within: 30) != nil)
            #expect(try fixture.daemon(at: mountpoint) == daemon, "the mount is still there")
        }

        @Test("A program gets the signals sent to its starter")
        func signals() throws {
            let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--", "sh", "-c", script], environment: fixture.environment)
            try program.expect("ready")
            kill(program.pid, SIGTERM)
            try program.expect("caught")
            #expect(program.wait(within: 30) == 3)
            try expectNothingLeft("after a signal")
        }

        @Test("A signal to the starter ends a sandbox whose first process is stopped")
        func signalToAStoppedSandbox() throws {
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--", "sh", "-c", "echo ready; exec sleep 1000"],
                environment: fixture.environment)
            try program.expect("ready")
            let first = try #require(Self.firstProcess(startedBy: program.pid))
            kill(first, SIGSTOP)
            try fixture.wait(until: "the first process is stopped") { Processes.kernelText("/proc/\(first)/status").contains("State:\tT") }
            kill(program.pid, SIGTERM)
            let status = program.wait(within: 20)
            #expect(status == 128 + SIGTERM)
            if status == nil { program.kill() }
            try expectNothingLeft("after a signal")
        }

        /// PID 1 of the sandbox: grantfs starts bwrap, and that the process.
        private static func firstProcess(startedBy starter: pid_t) -> pid_t? {
            let line = { (pid: pid_t, name: String) -> [pid_t] in
                let lines = Processes.kernelText("/proc/\(pid)/status").split(separator: "\n")
                return lines.first { $0.hasPrefix(name + ":") }?.split(separator: "\t").compactMap { pid_t($0) } ?? []
            }
            let all = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
            return all.first { pid in
                guard line(pid, "NSpid").dropFirst().last == 1, let parent = line(pid, "PPid").first else { return false }
                return line(parent, "PPid").first == starter
            }
        }

        @Test("A program and its view end with their starter", arguments: [false, true])
        func starterKilled(daemonToo: Bool) throws {
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--", "sh", "-c", "echo ready; while :; do sleep 0.1; : > docs/alive; done"],
                environment: fixture.environment)
            try program.expect("ready")
            let daemon = try #require(try fixture.status().mounts.first).pid
            if daemonToo {
                // Stopped first, so that it cannot notice.
                kill(daemon, SIGSTOP)
                kill(program.pid, SIGKILL)
                kill(daemon, SIGKILL)
            } else {
                kill(program.pid, SIGKILL)
            }
            _ = program.wait(within: 10)
            try fixture.wait(until: "the daemon is gone") { !Processes.isRunning(daemon) }
            if !daemonToo {
                #expect(try FileManager.default.contentsOfDirectory(atPath: fixture.store + "/run").isEmpty, "the daemon has cleaned up")
            }
            // A killed process holds its lock until its last thread has ended, a moment after it is seen to be dead.
            try fixture.wait(until: "the next command cleans up") { try fixture.list("--all").isEmpty }
            try expectNothingLeft("after the next command")
            try? FileManager.default.removeItem(atPath: source + "/alive")
            pause(milliseconds: 300)
            #expect(!FileManager.default.fileExists(atPath: source + "/alive"), "the program is dead")
        }

        @Test("Concurrent runs succeed while other commands clean up")
        func many() throws {
            try fixture.grantfs("run", "--grant", source, "--", "true").orThrow()
            // A sweeper takes an unlocked file for left behind.
            let sweeper = try Child([Programs.attacker, "sweep", fixture.store + "/run"])
            try sweeper.expect("ready")
            let output = try Command.shell(
                """
                export GRANTFS_STORE=$1
                seq 60 | xargs -P 20 -I{} sh -c '"$1" run --grant "$2" -- cat docs/file || echo failed' sh "$2" "$3"
                """, fixture.store, Programs.grantfs, source, within: 240)
            #expect(output.lines == [String](repeating: "granted", count: 60) && output.errors.isEmpty, "\(output)")
            sweeper.closeInput()
            try sweeper.expect("got 0")
            try expectNothingLeft("after sixty of them")
        }

        @Test("A plain user's run shows that user's view", .enabled(if: Machine.usersCanMount, "plain users cannot mount here"))
        func plainUser() throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: user)
            let source = try fixture.source("docs")
            try Data("granted\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            let output = try fixture.grantfs("run", "--grant", source, "--", "sh", "-c", "cat docs/file; id -u; : > docs/new")
            #expect(output.status == 0 && output.lines == ["granted", "\(user.uid)"], "\(output)")
            #expect(FileManager.default.fileExists(atPath: source + "/new"))
            #expect(try fixture.list("--all").isEmpty && fixture.mountpoints.isEmpty)
        }

        @Test("A run with invalid arguments is refused and leaves no mounts")
        func refusals() throws {
            for place in ["relative", "/", "/usr/x", "/tmp", "/etc", "/a/../b", "/proc/x"] {
                #expect(try run("true", "--grant", source, "--at", place).status == 2, "\(place)")
            }
            #expect(try run("true", "--grant", source, "--view", "v").status == 2)
            #expect(try run("true", "--grant", source + "/absent").status == 1)
            #expect(try run("true", "--grant", source, "--grant", source).status == 1, "the same name twice")
            try expectNothingLeft("after errors")
            let missing = try Command.run(
                [Programs.grantfs, "run", "--grant", source, "--", "true"],
                environment: fixture.environment.merging(["PATH": "/nowhere"]) { $1 })
            // One that cannot make the namespaces, as where the kernel does not let it.
            let failing = try fixture.directory("failing")
            // A link, because a program that was written just now may be busy still, in a child of another test.
            try FileManager.default.createSymbolicLink(atPath: failing + "/bwrap", withDestinationPath: "/bin/false")
            let failed = try Command.run(
                [Programs.grantfs, "run", "--grant", source, "--", "true"],
                environment: fixture.environment.merging(["PATH": failing + ":/usr/bin:/bin"]) { $1 })
            #expect(failed.status == 1 && failed.errors.contains("grantfs doctor"), "\(failed)")
            try expectNothingLeft("after a failure of bwrap")
            #expect(missing.status == 1 && missing.errors.contains("install the package bubblewrap"), "\(missing)")
        }
    }
}
