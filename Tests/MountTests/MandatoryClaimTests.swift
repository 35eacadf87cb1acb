import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite struct AMandatoryClaim {
        /// A mount of a mandatory grant `docs` with `a`, `b` and `d/c`, and a claimant.
        private func mounted(cache: String = "shared") throws -> (MountFixture, source: String, mount: String, claimant: Child) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            mkdir(source + "/d", 0o755)
            for name in ["a", "b", "d/c"] { try Data("old".utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=\(cache)")
            try fixture.grantfs("set", "docs", "--coordination", "mandatory").orThrow()
            return (fixture, source, mount + "/docs", try fixture.claimant())
        }

        private func ask(_ child: Child, _ line: String, _ answer: String = "granted") throws {
            child.send(line)
            try child.expect(answer)
        }

        /// By a process of its own, so that a test which would wait for ever ends.
        private func text(_ path: String) throws -> String { try Command.run(["cat", path], within: 10).orThrow().text }
        private func write(_ text: String, _ path: String) throws {
            try Command.shell("printf %s \"$1\" >\"$2\"", text, path, within: 10).orThrow()
        }

        /// A shell that is seen to wait, and what it gives once `body` has been done.
        private func waiting(_ script: String, _ arguments: String..., until body: () throws -> Void) throws -> Int32? {
            let child = try Child(["bash", "-c", script, "bash"] + arguments)
            #expect(child.wait(within: 0.5) == nil, "it did not wait: \(script)")
            try body()
            return child.wait(within: 10)
        }

        @Test(
            "for reading lets readers in and makes everything that changes something wait",
            arguments: [
                "echo new >\"$1/a\"", "echo more >>\"$1/a\"", ": >\"$1/new\"", "rm \"$1/a\"", "mv \"$1/a\" \"$1/z\"", "mkdir \"$1/m\"",
                "chmod 600 \"$1/a\"", "touch \"$1/a\"", "ln \"$1/a\" \"$1/l\"", "truncate -s 1 \"$1/d/c\"", "exec 3<>\"$1/d/c\"",
                "ln -s x \"$1/s\"", "setfattr -n user.x -v y \"$1/a\"",
            ])
        func reading(change: String) throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "read \(source)")
            #expect(try text(mount + "/a") == "old")
            #expect(try Command.run(["ls", mount], within: 10).lines == ["a", "b", "d"])
            let before = try Command.shell("cd \"$1\"; find . -printf '%p %m %s %T@ %n\\n' | sort", source).text
            let status = try waiting(change, mount) {
                #expect(try Command.shell("cd \"$1\"; find . -printf '%p %m %s %T@ %n\\n' | sort", source).text == before)
                try ask(claimant, "end")
            }
            #expect(status == 0)
            withExtendedLifetime(fixture) {}
        }

        @Test(
            "for writing makes readers wait, and shows them all of what was written meanwhile",
            arguments: [
                "cat \"$1/a\"", "stat \"$1/a\"", "ls \"$1\"", "cat \"$1/d/c\"", "[ -e \"$1/none\" ] || true", "getfattr -d \"$1/a\"",
            ],
            ["shared", "exclusive", "none"])
        func writing(look: String, cache: String) throws {
            let (fixture, source, mount, claimant) = try mounted(cache: cache)
            // Everything is in the kernel's cache before.
            try Command.shell("cat \"$1\"/a \"$1\"/b \"$1\"/d/c; ls -l \"$1\" \"$1/d\"", mount)
            try ask(claimant, "write \(source)")
            try write("half", source + "/a")
            let status = try waiting(look, mount) {
                try write("whole", source + "/a")
                try ask(claimant, "end")
            }
            #expect(status == 0)
            try fixture.wait(until: "it shows what was written", within: 1) { try text(mount + "/a") == "whole" }
        }

        @Test("shows who asked for the time of birth and had to wait what is there afterwards", arguments: ["shared", "exclusive", "none"])
        func birth(cache: String) throws {
            let (fixture, source, mount, claimant) = try mounted(cache: cache)
            // By descriptor, so that it is the request for attributes that waits and none for a name.
            // With write-back, what is open keeps the size and the times that the kernel knows.
            let look = cache == "exclusive" ? "%w %a" : "%w %s %y %a"
            let child = try Child([
                "bash", "-c", "exec 9<\"$1\"; echo open; read word; stat -L -c \"$2\" - <&9", "bash", mount + "/a", look,
            ])
            try child.expect("open")
            try ask(claimant, "write \(source)")
            child.send("look")
            #expect(child.line(within: 0.5) == nil, "it did not wait")
            try write("more than there was", source + "/a")
            try ask(claimant, "end")
            try child.expect(try Command.run(["stat", "-c", look, source + "/a"]).orThrow().trimmed)
            withExtendedLifetime(fixture) {}
        }

        @Test("finds in the files what was written through the mount, acknowledged and not yet written back")
        func dirty() throws {
            let (fixture, source, mount, claimant) = try mounted(cache: "exclusive")
            let file = open(mount + "/a", O_RDWR | O_CLOEXEC)
            #expect(pwrite(file, [UInt8](repeating: 0x41, count: 3_000_000), 3_000_000, 0) == 3_000_000)
            try ask(claimant, "read \(source)/a")
            #expect(try text(source + "/a").utf8.count { $0 == 0x41 } == 3_000_000)
            close(file)
            withExtendedLifetime(fixture) {}
        }

        @Test("leaves everything beside what is claimed alone, and other grants")
        func beside() throws {
            let (fixture, source, mount, claimant) = try mounted()
            let other = try fixture.source("other")
            try fixture.grant(other)
            try ask(claimant, "write \(source)/d")
            #expect(try text(mount + "/a") == "old")
            try write("new", mount + "/b")
            try write("new", fixture.base + "/mount/other/x")
            #expect(try waiting("cat \"$1/d/c\"", mount) { try ask(claimant, "end") } == 0)
        }

        @Test("cannot be passed by another name of the file, nor by moving what holds it")
        func otherNames() throws {
            let (fixture, source, mount, claimant) = try mounted()
            link(source + "/d/c", source + "/same")
            try ask(claimant, "read \(source)/d")
            #expect(try waiting("echo x >>\"$1/same\"", mount) { try ask(claimant, "end") } == 0)
            try ask(claimant, "read \(source)/d/c")
            #expect(try waiting("mv \"$1/d\" \"$1/e\"", mount) { try ask(claimant, "end") } == 0)
            withExtendedLifetime(fixture) {}
        }

        @Test("is passed by its own claimant and by what that has started")
        func ownProcesses() throws {
            let (fixture, source, mount, _) = try mounted()
            let script = "cat \"$1/a\" && echo new >\"$1/a\" && bash -c 'cat \"$1/a\"' bash \"$1\""
            let output = try fixture.grantfs("coordinate", "write", "docs", "--", "bash", "-c", script, "bash", mount, within: 10)
            #expect(output.trimmed == "oldnew")
            withExtendedLifetime(source) {}
        }

        @Test("lets waiting operations be interrupted and killed")
        func interrupts() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)")
            for signal in [SIGINT, SIGKILL] {
                let child = try Child(["cat", mount + "/a"])
                #expect(child.wait(within: 0.3) == nil)
                kill(child.pid, signal)
                #expect(child.wait(within: 5) == -signal)
            }
            withExtendedLifetime(fixture) {}
        }

        @Test("gives EAGAIN to who has waited as long as the claimant said")
        func patience() throws {
            let (fixture, _, mount, _) = try mounted()
            let command = try fixture.coordinating("write", "docs", "--hold", "0.3", "--", "sh", "-c", "echo begun; read line")
            try command.expect("begun")
            let start = Date()
            let output = try Command.run(["cat", mount + "/a"], within: 10)
            #expect(output.errors.contains("Resource temporarily unavailable"))
            #expect(Date().timeIntervalSince(start) > 0.25)
        }

        @Test("takes no worker for those who wait, and frees them all at its end")
        func manyWaiting() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)/a")
            let readers = try (0..<100).map { _ in try Child(["cat", mount + "/a"]) }
            pause(milliseconds: 300)
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            #expect(try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task").count < 40)
            #expect(try text(mount + "/b") == "old")
            try ask(claimant, "end")
            for reader in readers { #expect(reader.wait(within: 20) == 0) }
        }

        @Test("ends with EACCES for those who wait when the grant is revoked, at once")
        func revocation() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)")
            let reader = try Child(["cat", mount + "/a"])
            #expect(reader.wait(within: 0.3) == nil)
            let confirmations = try fixture.revoke("docs")
            #expect(confirmations[0].mounts.allSatisfy { $0.confirmed && $0.milliseconds < 1_000 })
            #expect(reader.wait(within: 2) == 1)
            try fixture.restore("docs")
            #expect(try text(mount + "/a") == "old")
        }

        @Test("frees those who wait when its claimant is killed, when the daemon is, and when the grant becomes advisory")
        func otherEnds() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)")
            #expect(try waiting("cat \"$1/a\"", mount) { kill(claimant.pid, SIGKILL) } == 0)
            let next = try fixture.claimant()
            try ask(next, "write \(source)")
            #expect(
                try waiting("cat \"$1/a\"", mount) { try fixture.grantfs("set", "docs", "--coordination", "advisory").orThrow() } == 0)
            try fixture.grantfs("set", "docs", "--coordination", "mandatory").orThrow()
            #expect(try waiting("cat \"$1/a\"", mount) { try fixture.killDaemon(at: fixture.base + "/mount") } == 1)
        }

        @Test("for reading keeps a store into a mapping waiting")
        func mapping() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try Data(count: 4096).write(to: URL(fileURLWithPath: source + "/m"))
            let mapper = try Child([Programs.claimProbe, "-", "map", mount + "/m"])
            try mapper.expect("mapped")
            try ask(claimant, "read \(source)")
            // What was stored before has reached the file.
            #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/m"))[0] == UInt8(ascii: "0"))
            mapper.send("1")
            #expect(mapper.line(within: 0.5) == nil)
            #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/m"))[0] == UInt8(ascii: "0"))
            try ask(claimant, "end")
            try mapper.expect("stored")
            withExtendedLifetime(fixture) {}
        }

        @Test("is a backup: under a full load of writers an archive of whole files, twice the same; the writers go on without an error")
        func backup() throws {
            let (fixture, source, mount, _) = try mounted()
            let load = try Child([Programs.claimProbe, "-", "load", mount, "6"])
            try load.expect("begun")
            let script = """
                cd "$GRANTFS_PATH" && tar -cf "$1/one.tar" . && sleep 0.3 && tar -cf "$1/two.tar" . && cmp "$1/one.tar" "$1/two.tar"
                """
            for _ in 0..<3 {
                pause(milliseconds: 200)
                let output = try fixture.grantfs("coordinate", "read", "docs", "--", "bash", "-c", script, "bash", fixture.base)
                #expect(output.status == 0, "\(output)")
            }
            let before = try #require(
                Int(
                    {
                        load.send("count"); return load.line() ?? ""
                    }()))
            try fixture.wait(until: "the writers go on") {
                load.send("count")
                return try #require(Int(load.line() ?? "")) > before + 100
            }
            load.closeInput()
            try load.expect("0 errors []")
            // Each file that is written over by one call has one generation's bytes.
            let unpacked = try fixture.directory("unpacked")
            try Command.shell("tar -xf \"$1/one.tar\" -C \"$2\"", fixture.base, unpacked).orThrow()
            for number in 0..<6 {
                let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(unpacked)/whole\(number)"))
                #expect(bytes.count == 65_536 && Set(bytes).count == 1)
            }
            withExtendedLifetime(source) {}
        }

        @Test(
            "loses nobody: claims of both kinds come and go under load, and every operation ends without an error",
            arguments: ["shared", "exclusive"])
        func stress(cache: String) throws {
            let (fixture, source, mount, claimant) = try mounted(cache: cache)
            let load = try Child([Programs.claimProbe, "-", "load", mount, "4"])
            try load.expect("begun")
            let other = try fixture.claimant()
            for round in 0..<40 {
                try ask(claimant, round % 2 == 0 ? "write \(source)" : "read \(source)")
                other.send(round % 3 == 0 ? "write \(source)/whole1" : "read \(source)/d")
                try ask(claimant, "end")
                try other.expect("granted")
                try ask(other, "end")
            }
            load.closeInput()
            try load.expect("0 errors []")
        }
    }
}
