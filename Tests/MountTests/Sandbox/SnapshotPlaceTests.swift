import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "A snapshot of root in a foreign directory",
        .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root, and a plain user to act as"))
    struct ForeignSnapshotPlace {
        private let fixture: MountFixture
        private let user: Identity
        private let attacker: String

        init() throws {
            fixture = try MountFixture()
            user = try #require(Machine.plainUser)
            let source = try fixture.source("docs")
            // Enough for another user to intervene.
            try Command.shell("cd \"$1\"; seq 2000 | split -l 1 -a 4 -d -; mkdir own; echo own >own/file", source).orThrow()
            try fixture.grant(source)
            try fixture.mount()
            // Where that user may run it.
            attacker = try fixture.directory("tools") + "/Attacker"
            try Command.run(["cp", Programs.attacker, attacker]).orThrow()
        }

        /// One attempt, in a directory of its own.
        private func attempt(_ turn: Int, elsewhere: String, _ victims: String...) throws -> (Output, snapshot: String) {
            let place = try fixture.directory("place\(turn)")
            chown(place, user.uid, user.gid)
            let child = try Child([attacker, "snapshot", place, "snap", elsewhere, "\(turn)"] + victims, identity: user)
            try child.expect("ready")
            let output = try fixture.grantfs("coordinate", "read", "docs", "--snapshot", place + "/snap")
            child.closeInput()
            _ = child.wait(within: 30)
            return (output, place + "/snap")
        }

        @Test(
            "A snapshot of root in a foreign directory removes no files of others")
        func removal() throws {
            // As /tmp: all users may make names there, and others' are protected.
            let shared = try fixture.directory("shared")
            chmod(shared, 0o1777)
            let canary = try fixture.directory("shared/etc") + "/shadow"
            try Data("root's".utf8).write(to: URL(fileURLWithPath: canary))
            chmod(canary, 0o600)
            for turn in 0..<6 {
                let (output, _) = try attempt(turn, elsewhere: shared, "etc")
                #expect(output.status == 1 && output.errors.contains("belongs to") && output.errors.contains("name a place"), "\(output)")
                try #require(FileManager.default.contents(atPath: canary) == Data("root's".utf8), "turn \(turn)")
            }
        }

        @Test("A snapshot of root never publishes a tree of another user")
        func publishing() throws {
            for turn in 0..<6 {
                let (output, snapshot) = try attempt(turn, elsewhere: "-")
                var status = stat()
                let isThere = lstat(snapshot, &status) == 0
                #expect(output.status != 0 ? !isThere : isThere && status.st_uid == 0, "turn \(turn): \(output)")
            }
        }

        @Test("A snapshot of root is made in a sticky directory")
        func made() throws {
            let shared = try fixture.directory("shared")
            chmod(shared, 0o1777)
            try fixture.grantfs("coordinate", "read", "docs", "--snapshot", shared + "/snap").orThrow()
            #expect(FileManager.default.contents(atPath: shared + "/snap/docs/own/file") == Data("own\n".utf8))
        }
    }
}
