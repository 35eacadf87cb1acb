import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A daemon trusts only the store: without it, every access is refused.
    @Suite struct StoreFailureTests {
        private func prepared(_ fixture: MountFixture) throws -> String {
            let source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            return try fixture.mount()
        }

        @Test(
            "A revocation that cannot be recorded shuts the grant and fails",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func fullStore() throws {
            let fixture = try MountFixture()
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none"], at: try fixture.directory("store"))
            let mountpoint = try prepared(fixture)
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/x"))
            _ = try Command.shell("dd if=/dev/zero of=\"$1\"/fill bs=4k 2>/dev/null", fixture.store)
            let output = try fixture.grantfs("revoke", "a")
            #expect(output.status == 1 && output.errors.contains("not recorded"), "\(output)")
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            // It stays shut, though the store still has it active.
            pause(milliseconds: 1_500)
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).status != 0)
            try FileManager.default.removeItem(atPath: fixture.store + "/fill")
            try fixture.revoke("a")
            try fixture.restore("a")
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "inside\n")
        }

        @Test(
            "A withdrawal with an almost full store refuses access even if it fails",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func almostFullStore() throws {
            let fixture = try MountFixture()
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none"], at: try fixture.directory("store"))
            let file = try prepared(fixture) + "/a/x"
            var outcomes: Set<Int32> = []
            func fill(leaving pages: Int) throws {
                let script = "dd if=/dev/zero of=\"$1\"/fill bs=4k 2>/dev/null || true; truncate -s -$(($2 * 4096)) \"$1\"/fill"
                _ = try Command.shell(script, fixture.store, "\(pages)")
            }
            func isShown() throws -> Bool { try Command.run(["cat", file], within: 60).text == "inside\n" }
            for pages in Array(0..<24) + [32, 48, 64, 128, 192] {
                try fill(leaving: pages)
                let revoked = try fixture.grantfs("revoke", "a")
                #expect(try !isShown(), "\(pages) pages: \(revoked)")
                if revoked.status != 0 { #expect(revoked.errors.contains("not recorded"), "\(pages) pages: \(revoked)") }
                outcomes.insert(revoked.status)
                unlink(fixture.store + "/fill")
                try fixture.revoke("a")
                try fill(leaving: pages)
                let restored = try fixture.grantfs("restore", "a")
                #expect(try isShown() == (restored.status == 0), "\(pages) pages: \(restored)")
                unlink(fixture.store + "/fill")
                try fixture.restore("a")
                #expect(try isShown())
            }
            // From no room at all to enough.
            #expect(outcomes == [0, 1])
        }

        @Test("A daemon refuses everything if its store is damaged or missing", arguments: ["removed", "replaced", "damaged"])
        func lostStore(how: String) throws {
            let fixture = try MountFixture()
            let mountpoint = try prepared(fixture)
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/x"))
            let change =
                switch how {
                case "removed": "rm \"$1\"/grants.sqlite*"
                case "replaced": "cp \"$1\"/grants.sqlite \"$1\"/new && mv \"$1\"/new \"$1\"/grants.sqlite && rm \"$1\"/key"
                default: "head -c 65536 /dev/urandom | dd of=\"$1\"/grants.sqlite conv=notrunc 2>/dev/null; rm -f \"$1\"/grants.sqlite-*"
                }
            try Command.shell(change, fixture.store).orThrow()
            try expectRefusal(fixture, mountpoint, held)
        }

        @Test("A daemon refuses everything if its store is damaged before the daemon first looks at it")
        func damagedEarly() throws {
            let fixture = try MountFixture()
            let stops = try StopPoints(fixture)
            stops.arm("store")
            let mountpoint = try prepared(fixture)
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/x"))
            try stops.awaitStop("store")
            let store = try FileHandle(forWritingTo: URL(fileURLWithPath: fixture.store + "/grants.sqlite"))
            try store.write(contentsOf: Data(repeating: 0xA5, count: 65_536))
            stops.goOn("store")
            try expectRefusal(fixture, mountpoint, held)
        }

        private func expectRefusal(_ fixture: MountFixture, _ mountpoint: String, _ held: FileHandle) throws {
            try fixture.wait(until: "everything is refused", within: 20) {
                try Command.run(["cat", mountpoint + "/a/x"], within: 30).status != 0
            }
            try fixture.wait(until: "what is held is refused", within: 20) { (try? held.read(upToCount: 1)) == nil }
            #expect(try Command.run(["ls", mountpoint], within: 30).text == "")
        }
    }
}
