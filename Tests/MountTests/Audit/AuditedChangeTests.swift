import Foundation
import Glibc
import TestSupport
import Testing

/// An entry of `grantfs log --json`.
struct LogDocument: Decodable {
    let number: Int
    let event: String
    let uid: UInt32
    let pid: Int32
    let loginUid: UInt32?
    let program: String
    let view: String?
    let grant: String?
    let name: String?
    let detail: String
    let access: String?
    let path: String?
    let newPath: String?
    let result: Int32?
    let count: Int?
}

extension MountFixture {
    func log(_ arguments: String...) throws -> [LogDocument] {
        try grantfs(["log", "--json"] + arguments).orThrow().decoded(as: [LogDocument].self)
    }
}

extension MountTests {
    @Suite("Audited changes") struct AuditedChanges {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        /// Changes through the mount, without openings.
        private func changes() throws -> [LogDocument] {
            let others = ["opened", "granted", "mounted", "denied", "changed", "expired", "revoked", "forgotten"]
            return try fixture.log().filter { !others.contains($0.event) }
        }

        @Test("An opening is logged as read, write or read-write")
        func purposes() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit")
            try Command.shell(": < \"$1\"; : >> \"$1\"; : <> \"$1\"; ls \"$2\"; : > \"$2/new\"", mountpoint + "/a/file", mountpoint + "/a")
                .orThrow()
            let opened = try fixture.log().filter { $0.event == "opened" }
            #expect(opened.filter { $0.path == source + "/file" }.map(\.access) == ["read", "write", "read-write"])
            #expect(opened.first { $0.path == source }?.access == "read")
            let made = try #require(opened.first { $0.path == source + "/new" })
            #expect(made.access == "write" && made.detail == "created" && made.result == 0)
            let text = try fixture.grantfs("log").orThrow().text
            #expect(text.contains("/file for reading and writing  [uid"), "\(text)")
        }

        @Test("Each kind of change is logged once with its program, path and result")
        func kinds() throws {
            let id = try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            let group = getgid()
            let script = """
                cd "$1"
                mkdir dir; rmdir dir; mkfifo pipe; ln file other; ln -s target link; mv other moved; chmod 600 file; chgrp \(group) file
                truncate -s 5 file; touch -d @1000000 file; rm moved
                python3 -c 'import os; os.setxattr("file", "user.a", b"1"); os.removexattr("file", "user.a")'
                """
            try Command.shell(script, mountpoint).orThrow()
            let all = try changes()
            let expected: [(event: String, program: String, path: String, newPath: String?, detail: String)] = [
                ("directoryMade", "mkdir", "/dir", nil, ""), ("directoryRemoved", "rmdir", "/dir", nil, ""),
                ("nodeMade", "mkfifo", "/pipe", nil, "a FIFO"), ("linked", "ln", "/file", "/other", ""),
                ("symlinkMade", "ln", "/link", nil, "to “target”"), ("renamed", "mv", "/other", "/moved", ""),
                ("modeSet", "chmod", "/file", nil, "mode 600"), ("ownerSet", "chgrp", "/file", nil, "gid \(group)"),
                ("truncated", "truncate", "/file", nil, "to 5 bytes"), ("timesSet", "touch", "/file", nil, ""),
                ("unlinked", "rm", "/moved", nil, ""), ("attributeSet", "python3", "/file", nil, "user.a"),
                ("attributeRemoved", "python3", "/file", nil, "user.a"),
            ]
            #expect(all.map(\.event) == expected.map(\.event))
            for (entry, wanted) in zip(all, expected) {
                #expect(entry.path == source + wanted.path, "\(entry)")
                #expect(entry.newPath == wanted.newPath.map { source + $0 } && entry.detail == wanted.detail, "\(entry)")
                #expect(entry.program.hasPrefix(wanted.program) && entry.pid > 0 && entry.uid == getuid(), "\(entry)")
                #expect(entry.result == 0 && entry.grant == id && entry.name == "a" && entry.view == "default", "\(entry)")
            }
        }

        @Test("Only the kinds of change named by `audit-of` are logged")
        func chosen() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit-of=remove:rename,recover")
            let place = mountpoint + "/a"
            let script = """
                cd "$1"; echo x > new; cat new file > /dev/null; mkdir dir; mv new newer; chmod 600 newer; truncate -s 5 file; rm newer
                rmdir dir; rm file/none
                """
            let expected = ["renamed", "unlinked", "directoryRemoved"]
            _ = try Command.shell(script, place)
            let uses = { try self.fixture.log().map(\.event).filter { $0 == "opened" || expected.contains($0) || $0.hasSuffix("Set") } }
            #expect(try uses() == expected)
            try fixture.grantfs("upgrade", mountpoint).orThrow()
            _ = try Command.shell(script, place)
            let daemon = try fixture.daemon(at: mountpoint)
            kill(daemon, SIGKILL)
            try fixture.wait(until: "another daemon serves") { try fixture.daemon(at: mountpoint) != daemon }
            _ = try Command.shell(script, place)
            #expect(try uses() == expected + expected + expected)
            let wrong = try fixture.grantfs("mount", "default", fixture.base, "-o", "audit-of=reads")
            #expect(wrong.status == 2 && wrong.errors.contains("read, write, create, remove, rename, attributes"), "\(wrong)")
        }

        @Test("`audit-of=write` logs only openings for writing")
        func chosenOpenings() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit-of=write,audit=1000")
            try Command.shell(
                "cd \"$1\"; cat file > /dev/null; ls > /dev/null; : >> file; : <> file; : > new; mkdir dir", mountpoint + "/a"
            ).orThrow()
            let opened = try fixture.log().filter { $0.event == "opened" }
            #expect(opened.map(\.access) == ["write", "read-write", "write"], "\(opened)")
            #expect(try changes().isEmpty)
        }

        @Test("A change or refusal is logged with the process, not the thread")
        func threads() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            let script = """
                import os, sys, threading
                def attempt():
                    try: os.mkdir(sys.argv[1])
                    except OSError: pass
                for turn in range(2):
                    thread = threading.Thread(target=attempt)
                    thread.start(); thread.join()
                    print('tried', flush=True); sys.stdin.readline()
                """
            let child = try Child(["python3", "-c", script, mountpoint + "/dir"])
            try child.expect("tried")
            #expect(try changes().map(\.pid) == [child.pid])
            try fixture.revoke("a")
            child.send("")
            try child.expect("tried")
            try fixture.wait(until: "it is in the log") { try fixture.log().contains { $0.event == "denied" } }
            #expect(try fixture.log().last { $0.event == "denied" }?.pid == child.pid)
        }

        @Test("A failed or refused change is logged with its error")
        func refused() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            try Command.shell("mkdir \"$1/full\"; : > \"$1/full/x\"", mountpoint).orThrow()
            _ = try Command.shell("rmdir \"$1/full\" || true", mountpoint)
            let failed = try changes().last
            #expect(failed?.event == "directoryRemoved" && failed?.result == ENOTEMPTY && failed?.path == source + "/full")
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            _ = try Command.shell("rm -f \"$1/file\" || true; chmod 600 \"$1/file\" || true", mountpoint)
            let late = try changes().suffix(2)
            #expect(late.map(\.event) == ["unlinked", "modeSet"] && late.allSatisfy { $0.result == EROFS }, "\(late)")
            #expect(late.map(\.program) == ["rm", "chmod"])
        }

        @Test("Under `audit` nothing is changed while the log cannot be written", .enabled(if: Identity.isRoot, "needs root"))
        func failsClosed() throws {
            // A store that can be made full.
            let store = try fixture.directory("small")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"], at: store)
            fixture.switches["GRANTFS_STORE"] = store
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            _ = try Command.shell("cat /dev/zero > \"$1/fill\" || true", store)
            // What the database has room for in itself is used up.
            try fixture.wait(until: "changes are refused") {
                try Command.run(["chmod", "600", mountpoint + "/file"]).errors.contains("Permission denied")
            }
            for command in ["rm -f file", "mkdir dir", "mv file other", "ln file other", "truncate -s 0 file", ": > new"] {
                let output = try Command.shell("cd \"$1\" && { \(command); }", mountpoint)
                #expect(output.status != 0, "\(command)")
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: source) == ["file"])
            #expect(try String(contentsOfFile: source + "/file", encoding: .utf8) == "inside\n")
            unlink(store + "/fill")
            try fixture.wait(until: "changes work again") { try Command.run(["rm", "-f", mountpoint + "/file"]).status == 0 }
            #expect(!FileManager.default.fileExists(atPath: source + "/file"))
        }

        @Test(
            "A change that waits for the log is not made after its grant is withdrawn",
            .enabled(if: Machine.offers("sqlite3"), "sqlite3 is not installed"))
        func withdrawal() throws {
            try fixture.grant(source, name: nil, view: nil, "--expires", "4s")
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            // During this transaction the log cannot be written, and the grant expires.
            let locker = try Child(["sqlite3", fixture.store + "/grants.sqlite"])
            locker.send(".timeout 20000\nBEGIN IMMEDIATE; SELECT 'locked';")
            try locker.expect("locked")
            let remover = try Child(["sh", "-c", "cd \"$1\"; echo there; rm file 2>&1; echo done", "sh", mountpoint])
            try remover.expect("there")
            let line = try #require(remover.line())
            #expect(line.contains("Permission denied"), "\(line)")
            try remover.expect("done")
            locker.send("ROLLBACK;")
            try fixture.wait(until: "it is in the log") { try changes().last?.event == "unlinked" && changes().last?.result != nil }
            #expect(try changes().last?.result == EACCES)
            #expect(FileManager.default.fileExists(atPath: source + "/file"))
        }

        @Test("Entries of one grant displace none of another grant")
        func shares() throws {
            let other = try fixture.source("b")
            try Data().write(to: URL(fileURLWithPath: other + "/kept"))
            try fixture.grant(source)
            try fixture.grant(other)
            let mountpoint = try fixture.mount(options: "audit=100")
            try Command.shell("for i in $(seq 20); do : < \"$1\"; done", mountpoint + "/b/kept").orThrow()
            try Command.shell("for i in $(seq 600); do : < \"$1\"; done; rm \"$1\"", mountpoint + "/a/file").orThrow()
            let entries = try fixture.log()
            #expect(entries.filter { $0.event == "opened" && $0.name == "b" }.count == 20)
            #expect(entries.last { $0.name == "a" && $0.event != "forgotten" }?.event == "unlinked")
            let forgotten = entries.filter { $0.event == "forgotten" }
            let left = entries.filter { $0.name == "a" && ["opened", "unlinked"].contains($0.event) }.count
            // `rm` looks at nothing else by opening it.
            #expect(forgotten.map(\.name) == ["a"] && (forgotten.first?.count ?? 0) + left == 601, "\(forgotten) \(left)")
        }

        @Test("A file or program name cannot forge a line of the log")
        func forgery() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            let name = "x\n2026-01-01T00:00:00Z  granted all [uid 0, pid 1, grantfs]\u{1B}[2J\r"
            try Data().write(to: URL(fileURLWithPath: source + "/" + name))
            // Its program calls itself so, too.
            let program = fixture.base + "/evil\ngranted x"
            // By another process: see `Command.writeProgram`.
            try Command.run(["cp", "/bin/rm", program]).orThrow()
            try Command.run([program, mountpoint + "/" + name]).orThrow()
            let entries = try fixture.log()
            let last = try #require(entries.last)
            #expect(last.event == "unlinked" && last.path == source + "/" + name && last.program == "evil\ngranted x")
            let text = try fixture.grantfs("log").orThrow().text
            #expect(text.split(separator: "\n").count == entries.count, "\(text)")
            #expect(!text.unicodeScalars.contains { $0.value < 0x20 && $0 != "\n" })
        }

        @Test("`log --follow` shows each change with its result")
        func followed() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            let follower = try Child([Programs.grantfs, "log", "--follow", "-n", "1000", "--json"], environment: fixture.environment)
            try Command.shell("for i in $(seq 50); do mkdir \"$1/d\" && rmdir \"$1/d\"; done", mountpoint).orThrow()
            var seen: [LogDocument] = []
            while seen.count < 100, let line = follower.line(within: 20) {
                let entry = try JSONDecoder().decode(LogDocument.self, from: Data(line.utf8))
                if entry.event.hasPrefix("directory") { seen.append(entry) }
            }
            #expect(seen.count == 100 && seen.allSatisfy { $0.result == 0 }, "\(seen.count)")
        }

        @Test("A change that waits for a claim and is refused is logged once")
        func waiting() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            try fixture.grantfs("set", "a", "--coordination", "mandatory").orThrow()
            let holder = try Child(
                [Programs.grantfs, "coordinate", "read", "a", "--hold", "0.3", "--", "sh", "-c", "echo held; read x"],
                environment: fixture.environment)
            try holder.expect("held")
            let late = try Command.run(["chmod", "600", mountpoint + "/file"])
            #expect(late.errors.contains("Resource temporarily unavailable"), "\(late)")
            let entries = try changes().filter { $0.event == "modeSet" }
            #expect(entries.map(\.result) == [EAGAIN] && entries.first?.path == source + "/file" && entries.first?.program == "chmod")
            holder.send("")
            #expect(holder.wait() == 0)
        }

        @Test("A truncation that waits for a host lease is logged once")
        func leased() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit") + "/a"
            let owner = try Child([
                "python3", "-c",
                """
                import fcntl, signal, sys, os
                f = open(sys.argv[1], 'r+'); signal.signal(signal.SIGIO, lambda *_: print('broken', flush=True))
                fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); print('leased', flush=True)
                sys.stdin.readline(); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK); print('free', flush=True); sys.stdin.readline()
                """, source + "/file",
            ])
            try owner.expect("leased")
            let truncating = try Child(["python3", "-c", "import os, sys; os.truncate(sys.argv[1], 0)", mountpoint + "/file"])
            try owner.expect("broken")
            // It is tried again and again meanwhile.
            pause(milliseconds: 100)
            #expect(try changes().isEmpty)
            owner.send("")
            try owner.expect("free")
            #expect(truncating.wait() == 0)
            #expect(try changes().map(\.event) == ["truncated"] && changes().first?.result == 0)
        }
    }
}
