import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("Audited openings") struct Audit {
        private struct Entry: Decodable {
            let number: Int
            let event: String
            let uid: UInt32
            let pid: Int32
            let program: String
            let view: String?
            let grant: String?
            let name: String?
            let path: String?
            let result: Int32?
        }

        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        private func opened(_ arguments: String...) throws -> [Entry] {
            let entries = try fixture.grantfs(["log", "--json"] + arguments).orThrow().decoded(as: [Entry].self)
            return entries.filter { $0.event == "opened" }
        }

        @Test("Each opening is logged with its process, path and result before it is answered")
        func recorded() throws {
            let id = try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit")
            let reader = try Child(["sh", "-c", "exec 3<\"$1\"; echo open; read x", "sh", mountpoint + "/a/file"])
            try reader.expect("open")
            let entry = try #require(try opened().last { $0.path == source + "/file" }, "at once, not some time later")
            #expect(entry.pid == reader.pid && entry.uid == getuid() && entry.program == "sh" && entry.result == 0)
            #expect(entry.grant == id && entry.name == "a" && entry.view == "default")
            // Made, listed, run.
            try Command.shell("echo x > \"$1/new\"; ls \"$1\"; cp /bin/true \"$1/program\"; \"$1/program\"", mountpoint + "/a").orThrow()
            let paths = try opened().map { $0.path }
            for name in ["/new", "", "/program"] { #expect(paths.contains(source + name), "\(name): \(paths)") }
            #expect(paths.filter { $0 == source + "/program" }.count >= 2, "written, and run")
        }

        @Test("An opening that the daemon refuses is logged with its error")
        func refused() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit")
            let holder = try Child(
                [
                    "sh", "-c", "cd \"$1\"; exec 3<file; echo ready; read x; cat /proc/self/fd/3 >/dev/null 2>&1; echo tried; read x", "sh",
                    mountpoint + "/a",
                ])
            try holder.expect("ready")
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            _ = try Command.shell("echo x >> \"$1\" || true", mountpoint + "/a/file")
            #expect(try opened().contains { $0.result == EROFS && $0.name == "a" })
        }

        @Test("Every opening is logged, also over a kill of the daemon")
        func complete() throws {
            try fixture.grant(source)
            for index in 0..<200 { try Data().write(to: URL(fileURLWithPath: source + "/f\(index)")) }
            let mountpoint = try fixture.mount(options: "audit")
            let daemon = try fixture.daemon(at: mountpoint)
            // The opener of the hundredth file kills the daemon while the others go on.
            let output = try Command.shell(
                """
                for p in 0 1 2 3; do (for i in $(seq $((p * 50)) $((p * 50 + 49))); do
                    : < "$1/f$i" && echo "f$i"; [ $i = 99 ] && kill -9 $2; done 2>/dev/null) & done; wait || true
                """, mountpoint + "/a", "\(daemon)")
            try fixture.wait(until: "the daemon is gone") { !Processes.isRunning(daemon) }
            let recorded = Set(try opened().filter { $0.result == 0 }.compactMap { $0.path })
            #expect(output.lines.count >= 50, "\(output)")
            #expect(
                output.lines.allSatisfy { recorded.contains(source + "/" + $0) }, "\(output.lines.count) opened, \(recorded.count) recorded"
            )
        }

        @Test("An opening that waits for a claim and is refused is logged")
        func waiting() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit")
            try fixture.grantfs("set", "a", "--coordination", "mandatory").orThrow()
            func untilItWaits() throws {
                try fixture.wait(until: "the opening waits for the claim") {
                    try fixture.metrics().value("grantfs_waiting_for_claims") == 1
                }
            }
            // Others of the machine may look into the mount as well.
            func openings() throws -> [Entry] { try opened().filter { $0.program == "tee" } }
            func results() throws -> [Int32?] { try openings().map(\.result) }
            // A writer under a claim for reading: names and attributes are told, so what waits is the opening.
            let writer = ["tee", "-a", mountpoint + "/a/file"]

            let holder = try Child(
                [Programs.grantfs, "coordinate", "read", "a", "--hold", "0.3", "--", "sh", "-c", "echo held; read x"],
                environment: fixture.environment)
            try holder.expect("held")
            let late = try Command.run(writer)
            #expect(late.errors.contains("Resource temporarily unavailable"), "\(late)")
            #expect(try results() == [EAGAIN], "before it is answered")
            #expect(try openings().map(\.path) == [source + "/file"])
            holder.send("")
            #expect(holder.wait() == 0)

            let claimant = try fixture.claimant()
            claimant.send("read \(source)")
            try claimant.expect("granted")
            let interrupted = try Child(writer)
            try untilItWaits()
            kill(interrupted.pid, SIGINT)
            #expect(interrupted.wait() == -SIGINT)
            try fixture.wait(until: "the interrupted one is in the log") { try results() == [EAGAIN, EINTR] }

            let revoked = try Child(writer)
            try untilItWaits()
            try fixture.revoke("a")
            revoked.closeInput()
            #expect(revoked.wait() == 1)
            try fixture.wait(until: "the revoked one is in the log") { try results() == [EAGAIN, EINTR, EACCES] }
        }

        @Test(
            "Under `audit` no file is opened while the log cannot be written", .enabled(if: Identity.isRoot, "needs root")
        )
        func failsClosed() throws {
            // A store that can be made full.
            let store = try fixture.directory("small")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"], at: store)
            fixture.switches["GRANTFS_STORE"] = store
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit")
            try Command.run(["cat", mountpoint + "/a/file"]).orThrow()
            _ = try Command.shell("cat /dev/zero > \"$1/fill\" || true", store)
            // What the database has room for in itself is used up.
            try fixture.wait(until: "openings are refused") {
                try Command.run(["cat", mountpoint + "/a/file"]).errors.contains("Permission denied")
            }
            let before = try Command.run(["cat", mountpoint + "/a/file"])
            #expect(before.status != 0 && before.text.isEmpty)
            unlink(store + "/fill")
            try fixture.wait(until: "openings work again") {
                try Command.run(["cat", mountpoint + "/a/file"]).text == "inside\n"
            }
        }

        @Test(
            "A withdrawal does not wait for a locked log and releases waiting openings",
            .enabled(if: Machine.offers("sqlite3"), "sqlite3 is not installed"))
        func withdrawal() throws {
            try fixture.grant(source, name: nil, view: nil, "--expires", "4s")
            let mountpoint = try fixture.mount(options: "audit")
            // During this transaction the log cannot be written, and the grant expires.
            let locker = try Child(["sqlite3", fixture.store + "/grants.sqlite"])
            // The daemon may be writing just now.
            locker.send(".timeout 20000\nBEGIN IMMEDIATE; SELECT 'locked';")
            try locker.expect("locked")
            let reader = try Child(["sh", "-c", "cat \"$1\" 2>&1; echo done", "sh", mountpoint + "/a/file"])
            let line = try #require(reader.line())
            #expect(line.contains("Permission denied"), "\(line)")
            locker.send("ROLLBACK;")
            try reader.expect("done")
        }

        @Test("The log drops old openings beyond its limit and keeps all other entries")
        func bounded() throws {
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "audit=100")
            let output = try Command.shell("for i in $(seq 600); do : < \"$1\"; done", mountpoint + "/a/file")
            #expect(output.status == 0)
            let kept = try opened()
            #expect(kept.count >= 100 && kept.count <= 200, "\(kept.count)")
            #expect(try #require(kept.map(\.number).max()) > 600, "the newest are kept")
            let events = try fixture.grantfs("log", "--json").orThrow().decoded(as: [Entry].self).map(\.event)
            #expect(events.contains("granted") && events.contains("mounted"), "what was done to grants is kept")
            #expect(try fixture.grantfs("mount", "default", fixture.base + "/native", "-o", "audit=0").status == 2)
        }

        @Test("The log can be filtered by grant and by age")
        func selected() throws {
            let id = try fixture.grant(source)
            try fixture.grant(try fixture.source("b"))
            func names(_ arguments: String...) throws -> [String?] {
                try fixture.grantfs(["log", "--json"] + arguments).orThrow().decoded(as: [Entry].self).map(\.name)
            }
            #expect(try names("--grant", "a") == ["a"] && names("--grant", String(id.prefix(8))) == ["a"])
            #expect(try names("--since", "1h") == ["a", "b"] && names("--since", "2000-01-01") == ["a", "b"])
            pause(milliseconds: 1100)
            #expect(try names("--since", "1s") == [])
            #expect(try fixture.grantfs("log", "--since", "soon").status == 2)
        }
    }
}
