import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite struct AMandatoryClaim {
        /// A mount of a mandatory grant `docs` with `a`, `b` and `d/c`, and a claimant.
        func mounted(cache: String = "shared") throws -> (MountFixture, source: String, mount: String, claimant: Child) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            mkdir(source + "/d", 0o755)
            for name in ["a", "b", "d/c"] { try Data("old".utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=\(cache)")
            try fixture.grantfs("set", "docs", "--coordination", "mandatory").orThrow()
            return (fixture, source, mount + "/docs", try fixture.claimant())
        }

        func ask(_ child: Child, _ line: String, _ answer: String = "granted") throws {
            child.send(line)
            try child.expect(answer)
        }

        /// By a process of its own, so that a test which would wait for ever ends.
        func text(_ path: String) throws -> String { try Command.run(["cat", path], within: 30).orThrow().text }
        func write(_ text: String, _ path: String) throws {
            try Command.shell("printf %s \"$1\" >\"$2\"", text, path, within: 30).orThrow()
        }

        /// A shell that is seen to wait, and what it gives once `body` has been done.
        func waiting(_ script: String, _ arguments: String..., until body: () throws -> Void) throws -> Int32? {
            let child = try Child(["bash", "-c", script, "bash"] + arguments)
            #expect(child.wait(within: 0.5) == nil, "it did not wait: \(script)")
            try body()
            return child.wait(within: 30)
        }

        @Test(
            "A mandatory claim for reading admits readers and blocks changes",
            arguments: [
                "echo new >\"$1/a\"", "echo more >>\"$1/a\"", ": >\"$1/new\"", "rm \"$1/a\"", "mv \"$1/a\" \"$1/z\"", "mkdir \"$1/m\"",
                "chmod 600 \"$1/a\"", "touch \"$1/a\"", "ln \"$1/a\" \"$1/l\"", "truncate -s 1 \"$1/d/c\"", "exec 3<>\"$1/d/c\"",
                "ln -s x \"$1/s\"", "setfattr -n user.x -v y \"$1/a\"",
            ])
        func reading(change: String) throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "read \(source)")
            #expect(try text(mount + "/a") == "old")
            #expect(try Command.run(["ls", mount], within: 30).lines == ["a", "b", "d"])
            let before = try Command.shell("cd \"$1\"; find . -printf '%p %m %s %T@ %n\\n' | sort", source).text
            let status = try waiting(change, mount) {
                #expect(try Command.shell("cd \"$1\"; find . -printf '%p %m %s %T@ %n\\n' | sort", source).text == before)
                try ask(claimant, "end")
            }
            #expect(status == 0)
            withExtendedLifetime(fixture) {}
        }

        @Test(
            "A mandatory claim for writing blocks readers, who then see the whole change",
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
            try fixture.wait(until: "it shows what was written", within: 10) { try text(mount + "/a") == "whole" }
        }

        @Test("A query of the birth time waits for a mandatory claim", arguments: ["shared", "exclusive", "none"])
        func birth(cache: String) throws {
            let (fixture, source, mount, claimant) = try mounted(cache: cache)
            // By descriptor, so that the request for attributes waits and not a lookup. With
            // write-back, an open file keeps the size and the times in the kernel.
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
            // A mount says when a file was born since Linux 6.6 (FUSE_STATX).
            let shown = Machine.kernel >= (6, 6) ? look : look.replacingOccurrences(of: "%w", with: "-")
            try child.expect(try Command.run(["stat", "-c", shown, source + "/a"]).orThrow().trimmed)
            withExtendedLifetime(fixture) {}
        }

        @Test("A claim for reading finds acknowledged writes in the file on the host")
        func dirty() throws {
            let (fixture, source, mount, claimant) = try mounted(cache: "exclusive")
            let file = open(mount + "/a", O_RDWR | O_CLOEXEC)
            #expect(pwrite(file, [UInt8](repeating: 0x41, count: 3_000_000), 3_000_000, 0) == 3_000_000)
            try ask(claimant, "read \(source)/a")
            #expect(try text(source + "/a").utf8.count { $0 == 0x41 } == 3_000_000)
            close(file)
            withExtendedLifetime(fixture) {}
        }

        @Test("A mandatory claim does not block other items or grants")
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

        @Test("A mandatory claim of a directory blocks changes through grants inside of it", arguments: ["/d", ""])
        func grantsInside(claimed: String) throws {
            let (fixture, source, mount, claimant) = try mounted()
            for name in ["inner", "other"] {
                mkdir("\(source)/d/\(name)", 0o755)
                try fixture.grant("\(source)/d/\(name)")
                try fixture.grantfs("set", name, "--coordination", "mandatory").orThrow()
            }
            let inner = mount.replacingOccurrences(of: "/docs", with: "/inner")
            try ask(claimant, "read \(source)\(claimed)")
            #expect(try waiting("echo x >\"$1/x\"", inner) { try ask(claimant, "end") } == 0)
            // A file in one of them is in no other.
            try ask(claimant, "read \(source)/d/other/missing")
            try write("y", inner + "/x")
            try ask(claimant, "end")
        }

        @Test("A mandatory claim covers other names of its file")
        func otherNames() throws {
            let (fixture, source, mount, claimant) = try mounted()
            link(source + "/d/c", source + "/same")
            try ask(claimant, "read \(source)/d")
            #expect(try waiting("echo x >>\"$1/same\"", mount) { try ask(claimant, "end") } == 0)
            try ask(claimant, "read \(source)/d/c")
            #expect(try waiting("mv \"$1/d\" \"$1/e\"", mount) { try ask(claimant, "end") } == 0)
            withExtendedLifetime(fixture) {}
        }

        @Test("The claimant and its children pass their own mandatory claim")
        func ownProcesses() throws {
            let (fixture, source, mount, _) = try mounted()
            let script = "cat \"$1/a\" && echo new >\"$1/a\" && bash -c 'cat \"$1/a\"' bash \"$1\""
            let output = try fixture.grantfs("coordinate", "write", "docs", "--", "bash", "-c", script, "bash", mount)
            #expect(output.trimmed == "oldnew")
            withExtendedLifetime(source) {}
        }

        @Test("A process that waits for a mandatory claim can be interrupted and killed")
        func interrupts() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)")
            for signal in [SIGINT, SIGKILL] {
                let child = try Child(["cat", mount + "/a"])
                #expect(child.wait(within: 0.3) == nil)
                kill(child.pid, signal)
                #expect(child.wait(within: 20) == -signal)
            }
            withExtendedLifetime(fixture) {}
        }

        @Test("A wait for a mandatory claim ends with EAGAIN after the hold time")
        func patience() throws {
            let (fixture, _, mount, _) = try mounted()
            let command = try fixture.coordinating("write", "docs", "--hold", "0.3", "--", "sh", "-c", "echo begun; read line")
            try command.expect("begun")
            let start = Date()
            let output = try Command.run(["cat", mount + "/a"], within: 30)
            #expect(output.errors.contains("Resource temporarily unavailable"))
            #expect(Date().timeIntervalSince(start) > 0.25)
        }

        @Test("Operations that wait for a mandatory claim occupy no workers")
        func manyWaiting() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)/a")
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            func threads() throws -> Int { try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task").count }
            let before = try threads()
            let readers = try (0..<100).map { _ in try Child(["cat", mount + "/a"]) }
            pause(milliseconds: 300)
            // A thread for each would be a hundred.
            try fixture.wait(until: "those who wait have no thread") { try threads() < before + 50 }
            #expect(readers.allSatisfy { $0.wait(within: 0) == nil })
            #expect(try text(mount + "/b") == "old")
            try ask(claimant, "end")
            for reader in readers { #expect(reader.wait(within: 60) == 0) }
        }

        @Test("A revocation ends operations that wait for a mandatory claim")
        func revocation() throws {
            let (fixture, source, mount, claimant) = try mounted()
            try ask(claimant, "write \(source)")
            let reader = try Child(["cat", mount + "/a"])
            #expect(reader.wait(within: 0.3) == nil)
            let confirmations = try fixture.revoke("docs")
            #expect(confirmations[0].isConfirmed)
            #expect(reader.wait(within: 20) == 1)
            try fixture.restore("docs")
            #expect(try text(mount + "/a") == "old")
        }

        @Test("A mandatory claim ends with its claimant, its daemon or its mode")
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
    }
}
