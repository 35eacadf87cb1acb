import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A program has a filesystem of its own write to pages of a granted file, through a mapping that is gone by then. Such pages are dirty when nobody
    /// has the file open for writing, so the kernel keeps them when it is told to drop them.
    @Suite struct PagesThatNobodyCanWriteBack {
        struct Pinned {
            let fixture: MountFixture
            let memory: HangingSource
            let attack: Child

            init(cache: String, reads: Int, means: String? = nil) throws {
                let caller = try #require(Machine.plainUser)
                let fixture = try MountFixture()
                self.fixture = fixture
                let source = try fixture.source("a")
                // A program, for who runs from it.
                try FileManager.default.copyItem(atPath: "/usr/bin/sleep", toPath: source + "/file")
                try #require(truncate(source + "/file", 16 * 4096) == 0)
                chmod(source + "/file", 0o777)
                chown(source + "/file", caller.uid, caller.gid)
                try fixture.grant(source)
                let mountpoint = try fixture.mount(options: "allow_other,cache=\(cache)")
                memory = try HangingSource("memory", in: fixture, squashes: true)
                try memory.file("pages", size: 16 * 4096)
                chmod(memory.behind + "/pages", 0o666)
                try memory.hang("read")
                let attack = try Child(
                    [Programs.attacker(for: caller), "pinned", mountpoint + "/a/file", memory.directory + "/pages", "\(reads)"]
                        + (means.map { [$0] } ?? []),
                    identity: caller)
                self.attack = attack
                try attack.expect("reading")
                // User Mode Linux does not say what threads wait for.
                if Machine.isUserModeLinux {
                    pause(milliseconds: 3_000)
                } else {
                    try fixture.wait(until: "the pages are pinned") { Self.waiting(attack.pid) == reads }
                }
                attack.send("")
                try attack.expect("ready")
            }

            /// How many threads wait for an answer of FUSE.
            private static func waiting(_ pid: Int32) -> Int {
                let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
                return threads.count { thread in
                    let place = try? String(contentsOfFile: "/proc/\(pid)/task/\(thread)/wchan", encoding: .utf8)
                    return place?.contains("request_wait_answer") == true
                }
            }

            func awaitAnswers() throws { try attack.expect("answered") }

            func end() {
                memory.end()
                attack.kill()
                fixture.finish()
            }

            func found() throws -> String? {
                attack.send("")
                return attack.line(within: 60)
            }
        }

        static let isPossible = Identity.isRoot && Machine.hasFUSE && Machine.plainUser != nil
        static let modes = ["shared", "exclusive", "none"]

        @Test(
            "are gone after a revocation that came when they were dirty",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"),
            arguments: modes)
        func before(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1)
            defer { pinned.end() }
            #expect(try pinned.found() == "16 pages")
            pinned.memory.goOn()
            try pinned.awaitAnswers()
            #expect(try pinned.fixture.revoke("a").allSatisfy(\.isConfirmed))
            #expect(try pinned.found() == "0 pages")
        }

        @Test(
            "are gone after a revocation during which they get dirty again and again",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: modes)
        func meanwhile(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 400)
            defer { pinned.end() }
            let revoking = try Child(
                [Programs.grantfs, "revoke", "a", "--json"], environment: pinned.fixture.environment)
            pinned.memory.goOn()
            #expect(revoking.wait() == 0)
            try pinned.awaitAnswers()
            #expect(try pinned.found() == "0 pages")
        }

        @Test(
            "are not said to be gone before they are where a program keeps a lease, or runs from the file",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: modes, ["lease", "run"])
        func withoutWriters(cache: String, means: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1000, means: means)
            defer { pinned.end() }
            #expect(try pinned.found() == "16 pages")
            let revoking = try Child(
                [Programs.grantfs, "revoke", "a", "--json"], environment: pinned.fixture.environment)
            pinned.memory.goOn()
            let status = revoking.wait()
            try pinned.awaitAnswers()
            let found = try pinned.found()
            #expect(status == 0 && found == "0 pages" || status == 3, "\(status), \(found ?? "nothing")")
            // It has given the lease up, or has ended.
            #expect(try pinned.fixture.revoke("a").allSatisfy(\.isConfirmed))
            #expect(try pinned.found() == "0 pages")
        }

        @Test(
            "are taken from one file though there are leases of hundreds of others, which are not waited for one after the other",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: modes)
        func besideLeases(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1)
            defer { pinned.end() }
            let fixture = pinned.fixture
            #expect(try pinned.found() == "16 pages")
            for number in 0..<300 { try Data("data".utf8).write(to: URL(fileURLWithPath: "\(fixture.base)/source/a/leased\(number)")) }
            let leases = try Child([Programs.attacker, "leases", fixture.base + "/mount/a/leased%d", "300"])
            try leases.expect("ready")
            pinned.memory.goOn()
            try pinned.awaitAnswers()
            let refused = try fixture.grantfs("revoke", "a", "--timeout", "1", "--json")
            #expect(refused.status == 3)
            let outcome = try refused.decoded(as: [RevocationDocument].self)[0].mounts[0]
            let unforgotten = outcome.unforgotten ?? []
            #expect(!unforgotten.isEmpty && unforgotten.allSatisfy { $0.hasPrefix("leased") })
            #expect(outcome.reason?.contains("has a lease of it") == true)
            #expect(try pinned.found() == "0 pages")
            leases.send("")
            try leases.expect("given")
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
        }

        @Test(
            "are looked for, so that leases for reading of a thousand files cost a revocation nothing where there are none",
            .enabled(if: isPossible, "needs root, /dev/fuse and a plain user"), arguments: modes)
        func leasesForReading(cache: String) throws {
            let fixture = try MountFixture()
            defer { fixture.finish() }
            let source = try fixture.source("a")
            for number in 0..<1000 { try Data("data".utf8).write(to: URL(fileURLWithPath: "\(source)/\(number)")) }
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            let leases = try Child([Programs.attacker, "leases", mountpoint + "/a/%d", "1000", "read"])
            try leases.expect("ready")
            try Command.shell("cat \"$1\"/a/* > /dev/null", mountpoint).orThrow()
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
        }

        @Test(
            "are looked for by a mountpoint to which nobody leads any more, as a filesystem above it hangs, and nobody waits for that",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"))
        func aboveTheMountpoint() throws {
            let fixture = try MountFixture()
            defer { fixture.finish() }
            let source = try fixture.source("a")
            try Data(count: 4096).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let above = try fixture.directory("above")
            let mountpoint = try fixture.directory("above/mount")
            try fixture.grantfs("mount", "default", mountpoint).orThrow()
            let held = try #require(FileHandle(forReadingAtPath: mountpoint + "/a/file"))
            let hanging = try HangingSource("memory", in: fixture)
            defer { hanging.end() }
            try hanging.file("mount/file")
            try Command.run(["mount", "--bind", hanging.directory, above]).orThrow()
            defer { umount2(above, 2) }
            try hanging.hang()
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            hanging.goOn()
        }
    }
}
