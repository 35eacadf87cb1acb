import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct CrashTests {
        private func prepared() throws -> (MountFixture, String) {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            return (fixture, try fixture.mount())
        }

        private func expectRefused(_ mountpoint: String, _ when: String) throws {
            let read = try Command.run(["cat", mountpoint + "/a/x"], within: 60)
            #expect(read.status != 0 && !read.text.contains("inside"), "\(when): \(read)")
        }

        @Test("A revoked grant stays revoked if the daemon is killed afterwards")
        func daemonKilledAfterRevocation() throws {
            let (fixture, mountpoint) = try prepared()
            try fixture.revoke("a")
            try fixture.killDaemon(at: mountpoint)
            try expectRefused(mountpoint, "dead")
            try fixture.mount()
            try expectRefused(mountpoint, "mounted again")
            #expect(try fixture.list("--all").map(\.state) == ["revoked"])
        }

        @Test("A recorded revocation stays in force if the daemon is killed during it", arguments: [0, 2, 5, 8, 12, 16, 20, 30])
        func daemonKilledDuringRevocation(milliseconds: Int) throws {
            let (fixture, mountpoint) = try prepared()
            let daemon = try fixture.daemon(at: mountpoint)
            let command = try Child(
                [Programs.grantfs, "revoke", "a", "--timeout", "3"], environment: fixture.environment, separateErrors: true)
            pause(milliseconds: milliseconds)
            kill(daemon, SIGKILL)
            let status = try #require(command.wait(), "the command hangs when its daemon dies")
            // A recorded revocation holds after any exit. Statuses 0 and 3 mean that it is
            // recorded.
            try fixture.wait(until: "the daemon is gone") { !Processes.isRunning(daemon) }
            try fixture.mount()
            let recorded = try fixture.list("--all").map(\.state) == ["revoked"]
            #expect(recorded || (status != 0 && status != 3))
            if recorded { try expectRefused(mountpoint, "killed after \(milliseconds) ms") }
        }

        @Test("The mount agrees with the record if a command is killed at any time", arguments: [0, 1, 3, 5, 8, 11, 14, 18, 24, 32])
        func commandKilled(milliseconds: Int) throws {
            let (fixture, mountpoint) = try prepared()
            let command = try Child([Programs.grantfs, "revoke", "a"], environment: fixture.environment, separateErrors: true)
            pause(milliseconds: milliseconds)
            kill(command.pid, SIGKILL)
            _ = command.wait()
            let recorded = try fixture.list("--all").map(\.state) == ["revoked"]
            if recorded {
                // Recorded but perhaps reported to no daemon: the daemon notices by itself.
                try fixture.wait(until: "a recorded revocation is in force") {
                    try Command.run(["cat", mountpoint + "/a/x"]).status != 0
                }
            }
            try fixture.killDaemon(at: mountpoint)
            try fixture.mount()
            let read = try Command.run(["cat", mountpoint + "/a/x"])
            // A commit that was cut off between the log and its index is decided by the recovery at the next opening.
            let final = try fixture.list("--all").map(\.state)
            #expect(!recorded || final == ["revoked"], "a recorded revocation is not taken back: \(milliseconds) ms")
            #expect((read.status != 0) == (final == ["revoked"]), "killed after \(milliseconds) ms, now \(final): \(read)")
        }

        @Test("A dead mount gives ENOTCONN until the next mount removes it")
        func deadMount() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            try fixture.killDaemon(at: mountpoint)
            var listing = try Command.run(["ls", mountpoint])
            // A request in progress at the end of the connection gets ECONNABORTED (fs/fuse/dev.c).
            // The next one does not.
            if listing.errors.contains("connection abort") {
                #expect(listing.text.isEmpty)
                listing = try Command.run(["ls", mountpoint])
            }
            #expect(listing.status != 0 && listing.text.isEmpty && listing.errors.contains("not connected"), "\(listing)")
            let output = try fixture.grantfs("mount", "default", mountpoint)
            #expect(output.status == 0, "\(output)")
            #expect(!output.errors.isEmpty, "it says that it cleaned up a dead mount")
            #expect(try Command.run(["ls", mountpoint]).lines == ["a"])
            #expect(try fixture.status().mounts.count == 1)
        }
    }
}
