import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Files on which a program of the host has a lease (fcntl(2), F_SETLEASE). A caller that opens
    /// or truncates one waits until the lease is released.
    @Suite(.serialized) struct ALeaseOfTheHost {
        /// A mount of two grants, and leases on so many files of the first.
        private func prepare(_ count: Int) throws -> (fixture: MountFixture, mountpoint: String, leases: Child) {
            let fixture = try MountFixture()
            let source = try fixture.source("leased")
            let plain = try fixture.source("other")
            try Data("text\n".utf8).write(to: URL(fileURLWithPath: plain + "/x"))
            try fixture.grant(source)
            try fixture.grant(plain)
            let mountpoint = try fixture.mount()
            let leases = try Child([Programs.attacker, "leases", source + "/f%d", "\(count)"])
            try leases.expect("ready")
            return (fixture, mountpoint, leases)
        }

        @Test("A lease on the host occupies no worker while callers wait for it", arguments: ["truncate", "empty", "open"])
        func workers(call: String) throws {
            let (fixture, mountpoint, leases) = try prepare(1100)
            let callers = try Child([Programs.attacker, "callers", call, mountpoint + "/leased/f%d", "1100"])
            try callers.expect("ready", within: 60)
            for _ in 0..<20 { #expect(try Command.run(["cat", mountpoint + "/other/x"], within: 90).text == "text\n") }
            // They still wait: so others did not wait for them.
            callers.send("count")
            #expect(callers.line() == "0")
            leases.send("go")
            try leases.expect("given")
            callers.send("all")
            #expect(callers.line(within: 60) == "OK 1100")
            let size = try Command.run(["stat", "-c", "%s", fixture.base + "/source/leased/f7"])
            #expect(size.trimmed == (call == "truncate" ? "1" : "0"))
        }

        @Test("A revocation ends the wait for a lease on the host", arguments: ["truncate", "open"])
        func revoking(call: String) throws {
            let (fixture, mountpoint, leases) = try prepare(300)
            let callers = try Child([Programs.attacker, "callers", call, mountpoint + "/leased/f%d", "300"])
            try callers.expect("ready", within: 60)
            callers.send("count")
            #expect(callers.line() == "0")
            #expect(try fixture.revoke("leased")[0].isConfirmed)
            callers.send("all")
            #expect(callers.line(within: 60) == "EACCES 300")
            #expect(try Command.run(["stat", "-c", "%s", fixture.base + "/source/leased/f7"]).trimmed == "0")
            withExtendedLifetime(leases) {}
        }

        @Test("A nonblocking open of a leased file gives EAGAIN")
        func ending() throws {
            let (fixture, mountpoint, leases) = try prepare(2)
            let impatient = try Child([Programs.attacker, "callers", "nonblock", mountpoint + "/leased/f%d", "1"])
            try impatient.expect("ready")
            impatient.send("all")
            #expect(impatient.line() == "EAGAIN 1")
            // timeout(1) ends it by SIGTERM, which it would not be if it could not be interrupted.
            let ended = try Command.shell("timeout -k 20 1 sh -c '> \"$1/f1\"' sh \"$1\"", mountpoint + "/leased", within: 60)
            #expect(ended.status == 124, "\(ended)")
            leases.send("go")
            try leases.expect("given")
            #expect(try Command.shell("echo new > \"$1/f1\"; cat \"$1/f1\"", mountpoint + "/leased", within: 60).text == "new\n")
            withExtendedLifetime(fixture) {}
        }
    }
}
