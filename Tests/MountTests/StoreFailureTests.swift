import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A daemon believes the store and nothing else: without it, nobody gets anything.
    @Suite struct WithoutItsStore {
        private func prepared(_ fixture: MountFixture) throws -> String {
            let source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            return try fixture.mount()
        }

        @Test(
            "a revocation that cannot be recorded shuts the grant all the same, and fails loudly",
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

        @Test("a daemon whose store is damaged or gone refuses everything", arguments: ["removed", "replaced", "damaged"])
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
            try fixture.wait(until: "everything is refused", within: 20) {
                try Command.run(["cat", mountpoint + "/a/x"], within: 30).status != 0
            }
            try fixture.wait(until: "what is held is refused", within: 20) { (try? held.read(upToCount: 1)) == nil }
            #expect(try Command.run(["ls", mountpoint], within: 30).text == "")
        }
    }
}
