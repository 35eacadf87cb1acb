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

            init(cache: String, reads: Int) throws {
                let caller = try #require(Machine.plainUser)
                let fixture = try MountFixture()
                self.fixture = fixture
                let source = try fixture.source("a")
                try Data(repeating: 0x61, count: 16 * 4096).write(to: URL(fileURLWithPath: source + "/file"))
                chmod(source + "/file", 0o666)
                try fixture.grant(source)
                let mountpoint = try fixture.mount(options: "allow_other,cache=\(cache)")
                memory = try HangingSource("memory", in: fixture, squashes: true)
                try memory.file("pages", size: 16 * 4096)
                chmod(memory.behind + "/pages", 0o666)
                try memory.hang("read")
                let attack = try Child(
                    [Programs.attacker(for: caller), "pinned", mountpoint + "/a/file", memory.directory + "/pages", "\(reads)"],
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
