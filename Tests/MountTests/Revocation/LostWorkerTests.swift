import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A fault of the daemon that a caller can provoke. Here GRANTFS_TEST_TRAP causes it, in
    /// statfs(2) of a file.
    @Suite struct LostWorkerTests {
        /// A view with two grants, one of them left alone.
        private func mounted(_ trap: String) throws -> (MountFixture, String, pid_t) {
            let fixture = try MountFixture()
            fixture.switches["GRANTFS_TEST_TRAP"] = trap
            for name in ["hit", "innocent"] {
                let source = try fixture.source(name)
                try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source)
            }
            let mount = try fixture.mount()
            return (fixture, mount, try fixture.daemon(at: mount))
        }

        @Test("A lost worker costs its caller EIO and no other operation")
        func othersServeOn() throws {
            let (fixture, mount, daemon) = try mounted("free")
            var space = statvfs()
            // More than there are readers, so that others have had to come.
            for _ in 0..<24 {
                #expect(statvfs(mount + "/hit/file", &space) == -1 && errno == EIO)
                #expect(try String(contentsOfFile: mount + "/innocent/file", encoding: .utf8) == "text")
                #expect(try String(contentsOfFile: mount + "/hit/file", encoding: .utf8) == "text")
            }
            #expect(try fixture.daemon(at: mount) == daemon)
            let outcome = try fixture.grantfs("revoke", "hit", "--json")
            #expect(outcome.status == 0, "\(outcome)")
            #expect(access(mount + "/hit/file", R_OK) == -1)
            #expect(try String(contentsOfFile: mount + "/innocent/file", encoding: .utf8) == "text")
            #expect(Processes.isRunning(daemon))
        }

        @Test("A lost worker that holds a lock ends the daemon")
        func withALockTheDaemonEnds() throws {
            let (fixture, mount, daemon) = try mounted("locked")
            var space = statvfs()
            #expect(statvfs(mount + "/hit/file", &space) == -1)
            try fixture.wait(until: "the daemon has ended") { !Processes.isRunning(daemon) }
            // A call in progress at the end of the connection gets ECONNABORTED (fs/fuse/dev.c). A
            // later one gets ENOTCONN.
            try fixture.wait(until: "the connection has ended") { access(mount + "/innocent/file", R_OK) == -1 && errno == ENOTCONN }
        }
    }
}
