import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A program makes its own filesystem write to pages of a granted file, through a mapping that no longer exists. Such pages are dirty
    /// without an open writer, so the kernel keeps them when it is told to drop them.
    @Suite struct PinnedPageTests {
        /// How the mount stands.
        enum Standing: String, CaseIterable {
            case plainly
            /// A mount that shows its views in mounts of their own.
            case separate
            /// Something is mounted on it.
            case covered
            /// It was detached, and is nowhere any more.
            case detached
            /// A user has made it.
            case ofAUser
            /// Another daemon has taken it over since the file was open for writing.
            case upgraded
        }

        struct Pinned {
            let fixture: MountFixture
            let memory: HangingSource
            let attack: Child

            /// `means`: what else the attacker does, see its source.
            init(cache: String, reads: Int, means: String? = nil, _ standing: Standing = .plainly) throws {
                let caller = try #require(Machine.plainUser)
                let fixture = try MountFixture(owner: standing == .ofAUser ? caller : .current)
                self.fixture = fixture
                let source = try fixture.source("a")
                // No page is of zeros, by which pages are overwritten.
                let program = means == "run" ? try Data(contentsOf: URL(fileURLWithPath: "/usr/bin/sleep")) : Data()
                let filled = program.count / 4096 * 4096 + 4096
                let file = program + Data(repeating: 0, count: filled - program.count) + Data(repeating: 0x61, count: 16 * 4096)
                try file.write(to: URL(fileURLWithPath: source + "/file"))
                let offset = filled
                chmod(source + "/file", 0o777)
                chown(source + "/file", caller.uid, caller.gid)
                let mountpoint = try fixture.directory("mount")
                let view = standing == .separate ? "v1" : "default"
                let who = standing == .ofAUser ? "" : "allow_other,"
                try fixture.grantfs("grant", source, "--name", "a", "--view", view).orThrow()
                if standing == .separate {
                    try fixture.grantfs("mount", "--views", "v*", mountpoint, "-o", "\(who)cache=\(cache)").orThrow()
                } else {
                    try fixture.mount(options: "\(who)cache=\(cache)")
                }
                let place = standing == .separate ? mountpoint + "/v1/a" : mountpoint + "/a"
                try fixture.wait(until: "it is mounted") { access(place + "/file", F_OK) == 0 || standing == .ofAUser }
                memory = try HangingSource("memory", in: fixture, squashes: true)
                // An answer of one byte makes all pages dirty, and leaves what they show.
                try memory.file("pages", size: 1)
                chmod(memory.behind + "/pages", 0o666)
                try memory.hang("read")
                let attack = try Child(
                    [Programs.attacker(for: caller), "pinned", place + "/file", "\(offset)", memory.directory + "/pages", "\(reads)"]
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
                switch standing {
                case .covered: try Command.run(["mount", "-t", "tmpfs", "none", mountpoint]).orThrow()
                case .detached: try Command.run(["umount", "-l", mountpoint]).orThrow()
                case .upgraded: try fixture.grantfs("upgrade", mountpoint).orThrow()
                default: break
                }
            }

            /// Lets all reads be answered while the grant is revoked. Returns the contents found
            /// then.
            func revokeMeanwhile() throws -> String? {
                let revoking = try Child(
                    [Programs.grantfs, "revoke", "a", "--json"], identity: fixture.owner, environment: fixture.environment)
                memory.goOn()
                #expect(revoking.wait() == 0)
                try awaitAnswers()
                return try found()
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

        static let isPossible = Identity.isRoot && Machine.hasFUSE && Machine.usersCanMount
        static let modes = ["shared", "exclusive", "none"]

        @Test(
            "Pinned dirty pages are empty after a revocation",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"),
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
            "Pinned pages that get dirty again during a revocation are empty after it",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: modes)
        func meanwhile(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 400)
            defer { pinned.end() }
            #expect(try pinned.revokeMeanwhile() == "0 pages")
        }

        @Test(
            "Pinned pages of a leased or running file are empty after a revocation",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: modes, ["lease", "run"])
        func leasedOrRunning(cache: String, means: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1000, means: means)
            defer { pinned.end() }
            #expect(try pinned.found() == "16 pages")
            #expect(try pinned.revokeMeanwhile() == "0 pages")
        }

        @Test(
            "A revocation empties pinned pages in covered, detached, upgraded and user mounts",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: modes,
            Standing.allCases.filter { $0 != .plainly })
        func elsewhere(cache: String, standing: Standing) throws {
            let pinned = try Pinned(cache: cache, reads: 1000, standing)
            defer { pinned.end() }
            #expect(try pinned.found() == "16 pages")
            #expect(try pinned.revokeMeanwhile() == "0 pages")
        }

        @Test(
            "Pinned pages of a file that left the grant are empty",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: modes)
        func departed(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1000)
            defer { pinned.end() }
            let fixture = pinned.fixture
            #expect(try pinned.found() == "16 pages")
            let path = fixture.base + "/mount/a/file"
            pinned.memory.goOn()
            try #require(rename(fixture.base + "/source/a/file", fixture.base + "/source/gone") == 0)
            try fixture.wait(until: "it is refused") { access(path, F_OK) != 0 }
            try pinned.awaitAnswers()
            try fixture.wait(until: "nothing is shown") { try pinned.found() == "0 pages" }
        }

        @Test(
            "Pinned pages are empty after a revocation beside many held listings",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: ["shared", "exclusive"])
        func besideListings(cache: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1000)
            defer { pinned.end() }
            let (fixture, caller) = (pinned.fixture, try #require(Machine.plainUser))
            #expect(try pinned.found() == "16 pages")
            try Command.shell("cd \"$1\"; mkdir $(seq -f d%g 120); chmod a+rwX d*", fixture.base + "/source/a").orThrow()
            let listing = try HangingSource("listing", in: fixture, squashes: true)
            defer { listing.end() }
            for part in 0..<2 {
                // One file has 64 pages.
                try listing.file("part\(part)", size: 64 * 4096)
                chmod(listing.behind + "/part\(part)", 0o666)
            }
            try listing.hang("read")
            let attacks = try (0..<2).map { part in
                let names = (1...60).map { "\(fixture.base)/mount/a/d\(part * 60 + $0)" }
                return try Attack("held-listing", ["\(listing.directory)/part\(part)"] + names, as: caller)
            }
            let revoking = try Child([Programs.grantfs, "revoke", "a", "--timeout", "5"], environment: fixture.environment)
            pinned.memory.goOn()
            #expect(revoking.wait() == 3)
            try pinned.awaitAnswers()
            #expect(try pinned.found() == "0 pages")
            for attack in attacks { attack.end() }
        }

        @Test(
            "Pinned pages make no revocation wait for leases of hundreds of files",
            .enabled(if: isPossible, "needs root, /dev/fuse and fusermount3"), arguments: modes, ["read", "write"])
        func besideLeases(cache: String, kind: String) throws {
            let pinned = try Pinned(cache: cache, reads: 1)
            defer { pinned.end() }
            let fixture = pinned.fixture
            #expect(try pinned.found() == "16 pages")
            for number in 0..<300 { try Data("data".utf8).write(to: URL(fileURLWithPath: "\(fixture.base)/source/a/leased\(number)")) }
            let leases = try Child(
                [Programs.attacker, "leases", fixture.base + "/mount/a/leased%d", "300"] + (kind == "read" ? ["read"] : []))
            try leases.expect("ready")
            pinned.memory.goOn()
            try pinned.awaitAnswers()
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
            #expect(try pinned.found() == "0 pages")
        }

        @Test(
            "A reader of revoked pages is refused and never reads zeros",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"), arguments: modes, ["read", "map"])
        func readOn(cache: String, by way: String) throws {
            let fixture = try MountFixture()
            defer { fixture.finish() }
            let source = try fixture.source("a")
            // To overwrite as much takes longer than the reader is without a processor.
            let pages = 24 << 10
            try Data(repeating: UInt8(ascii: "a"), count: pages * 4096).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            let readers = try (0..<2).map { _ in
                let reader = try Child([Programs.attacker, "read-on", mountpoint + "/a/file", "\(pages)", way])
                try reader.expect("ready")
                return reader
            }
            defer { for reader in readers { reader.kill() } }
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
            for reader in readers {
                reader.send("")
                let line = try #require(reader.line(within: 60))
                #expect(line.contains(" 0 wrong, ") && !line.hasSuffix(" 0 refused"), "\(line)")
            }
        }

        @Test(
            "A large file in a read-only mount delays no revocation or unmount",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"), arguments: modes)
        func largeAndReadOnly(cache: String) throws {
            let fixture = try MountFixture()
            defer { fixture.finish() }
            let source = try fixture.source("a")
            try Command.shell("truncate -s 2G \"$1/file\"", source).orThrow()
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "ro,cache=\(cache)")
            let held = open(mountpoint + "/a/file", O_RDONLY | O_CLOEXEC)
            var byte: UInt8 = 0
            try #require(pread(held, &byte, 1, 0) == 1)
            #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
            close(held)
            try fixture.grantfs("unmount", mountpoint).orThrow()
        }

        @Test(
            "A revocation does not walk the path of its mountpoint",
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
