import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct ALiveChange {
        /// Calls that open for writing and change nothing: under cache=exclusive the first write is
        /// refused (`KernelOpensTests/readOnly`).
        private static let opening: Set<String> = [
            "open-proc-fd-for-writing", "openat-for-writing", "open-for-writing", "open-rdwr", "open-append",
        ]

        @Test(
            "A narrowing to read-only gives EROFS on open handles, and reads go on",
            arguments: ["shared", "exclusive", "none"], [false, true])
        func narrowing(cache: String, cold: Bool) throws {
            let mount = try ProbedMount(Situation(cold: cold, cache: cache))
            let native = try mount.native()
            let before = try mount.probe(mount.held)
            try mount.fixture.grantfs("set", "held", "--access", "read-only").orThrow()
            // Mappings have a test of their own: there the file is refused, not the page.
            for result in try before.attempt() where !result.held.hasPrefix("map") && result.errno != "SKIP" {
                if result.change && native[result.row] == "OK" {
                    let mayOpen = cache == "exclusive" && Self.opening.contains(result.kind)
                    let allowed = ["EROFS"] + (mayOpen ? ["OK"] : []) + (ProbedMount.differences[result.row] ?? [])
                    #expect(allowed.contains(result.errno), "\(result.row) gives \(result.errno) on a handle from before")
                } else if !result.change && !["fsync", "fdatasync", "io_uring-fsync"].contains(result.kind) {
                    let same = result.errno == native[result.row] || ProbedMount.differences[result.row]?.contains(result.errno) == true
                    #expect(same, "\(result.row) gives \(result.errno), natively \(native[result.row] ?? "")")
                }
            }
            let fresh = try Command.run(["touch", mount.held + "/new"])
            #expect(fresh.errors.contains("Read-only file system"))
            try mount.fixture.grantfs("set", "held", "--access", "read-write").orThrow()
            try Command.run(["touch", mount.held + "/new"]).orThrow()
        }

        @Test(
            "A narrowing to read-only stops writes to a file that is open for writing",
            arguments: ["shared", "exclusive", "none"])
        func narrowingOpenFiles(cache: String) throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let mount = try fixture.mount(options: "cache=\(cache)")
            let script = """
                import os, sys
                path = sys.argv[1] + '/file'
                files = [os.open(path, mode | os.O_CREAT) for mode in (os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND)]
                os.write(files[0], b'x' * 5000)
                def attempt(call, *arguments):
                    try: return call(*arguments)
                    except OSError as error: return os.strerror(error.errno)
                print('open', flush=True)
                for line in sys.stdin:
                    writing = [attempt(os.pwrite, file, data, 0) for file in files for data in (b'y' * 4096, b'y')]
                    reading = [len(os.pread(files[0], count, offset)) for count, offset in ((10, 0), (4096, 4096), (10, 5000))]
                    sizes = [os.lseek(file, 0, os.SEEK_END) for file in files] + [os.fstat(files[1]).st_size, os.stat(path).st_size]
                    print(*set(writing), *reading, *set(sizes), flush=True)
                print(*[attempt(call, file) for call in (os.fsync, os.close) for file in files], flush=True)
                """
            let holder = try Child(["python3", "-I", "-c", script, mount + "/a"])
            try holder.expect("open")
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            for _ in 0..<3 {
                holder.send("go on")
                try holder.expect("Read-only file system 10 904 0 5000")
            }
            let file = fixture.base + "/source/a/file"
            holder.closeInput()
            try holder.expect("None None None None None None")
            #expect(try Command.shell("tr -d x < \"$1\" | wc -c; wc -c < \"$1\"", file).orThrow().lines == ["0", "5000"])
        }

        @Test(
            "A narrowing to read-only keeps earlier stores of mappings and refuses later ones",
            arguments: ["shared", "exclusive"])
        func narrowingMappings(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let file = URL(fileURLWithPath: source + "/file")
            let size = 32 * 4096
            try Data(count: size).write(to: file)
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            let writer = try Probe.role(["dirty", mountpoint + "/a/file"])
            try writer.expect("ready")
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            func pages(holding byte: Character) throws -> Int {
                let bytes = try Data(contentsOf: file)
                return stride(from: 0, to: size, by: 4096).count { bytes[$0] == byte.asciiValue }
            }
            #expect(try pages(holding: "Z") == 32)
            writer.send("go on")
            let synchronised = writer.line()
            #expect(synchronised != nil && synchronised != "OK", "\(synchronised ?? "it hangs")")
            #expect(try pages(holding: "Y") == 0)
            writer.send("end")
            _ = writer.wait()
            #expect(try pages(holding: "Z") == 32)
        }

        @Test("The root listing follows each new, renamed, revoked or restored grant at once")
        func rootListing() throws {
            let fixture = try MountFixture()
            let mountpoint = try fixture.mount(isNew: true)
            func names() throws -> [String] { try Command.run(["ls", mountpoint]).orThrow().lines }
            #expect(try names() == [])
            try fixture.grant(try fixture.source("a"))
            #expect(try names() == ["a"])
            try fixture.grant(try fixture.source("b"), name: "bee")
            #expect(try names() == ["a", "bee"])
            try fixture.grantfs("set", "bee", "--name", "wasp").orThrow()
            #expect(try names() == ["a", "wasp"])
            #expect(try Command.run(["stat", mountpoint + "/bee"]).errors.contains("No such file"))
            try fixture.revoke("a")
            #expect(try names() == ["wasp"])
            #expect(try Command.run(["stat", mountpoint + "/a"]).errors.contains("Permission denied"))
            try fixture.restore("a")
            #expect(try names() == ["a", "wasp"])
            try fixture.grantfs("remove", "a").orThrow()
            #expect(try names() == ["wasp"])
            #expect(try Command.run(["stat", mountpoint + "/a"]).errors.contains("No such file"))
        }

        @Test("An expired grant refuses open handles, and a restoration permits new ones")
        func expiry() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Probe.prepare(source)
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            let native = try Probe.native(in: try fixture.directory("native"))
            let probe = try Probe(below: mountpoint + "/a")
            // Not before everything is held, however long that takes.
            try fixture.grantfs("set", "a", "--expires", "1s").orThrow()
            try fixture.wait(until: "the grant has expired") { try Command.run(["cat", mountpoint + "/a/read"]).status != 0 }
            // The gate is shut before the kernel's cache is invalidated, and only the daemon waits
            // for the rest.
            try fixture.wait(until: "the withdrawal is over") {
                try fixture.metrics().value("grantfs_withdrawal_duration_seconds_count", ["kind": "revocation"]) == 1
            }
            ProbedMount.expectRefused(try probe.attempt(), native, "expired")
            #expect(try fixture.list("--all").map(\.state) == ["expired"])
            #expect(try fixture.list().isEmpty)
            try fixture.restore("a")
            try Probe.prepare(source)
            ProbedMount.expectNative(try Probe(below: mountpoint + "/a").attempt(), native, "restored")
            let again = try #require(try fixture.list().first)
            #expect(again.state == "active" && again.expires == nil)
        }

        @Test("A restoration permits new opens, and old handles stay refused")
        func restoring() throws {
            let mount = try ProbedMount(Situation())
            let native = try mount.native()
            var old: [Probe] = []
            for round in 0..<4 {
                old.append(try mount.probe(mount.held))
                try mount.fixture.revoke("held")
                try mount.fixture.restore("held")
                for probe in old {
                    let results = try probe.attempt().filter { !["path", "inotify"].contains($0.held) && $0.after != "FAIL" }
                    ProbedMount.expectRefused(results, native, "round \(round)")
                }
            }
        }
    }
}
