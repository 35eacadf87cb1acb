import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Programs that are started without standard descriptors.
    @Suite struct ClosedDescriptors {
        private static let closed = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]

        /// Runs grantfs in a shell that closes descriptors before.
        private func grantfs(_ fixture: MountFixture, closing: String, _ arguments: String...) throws -> Output {
            try Command.run(
                ["sh", "-c", "exec \"$@\" " + closing, "sh", Programs.grantfs] + arguments, environment: fixture.environment)
        }

        @Test("A mount that is made without standard descriptors serves its files", arguments: closed)
        func mount(closing: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("granted".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            #expect(try grantfs(fixture, closing: closing, "mount", "default", mountpoint).status == 0)
            #expect(try String(contentsOfFile: mountpoint + "/a/file", encoding: .utf8) == "granted")
            let daemon = try fixture.daemon(at: mountpoint)
            for process in [daemon] + Processes.keepers(of: mountpoint) {
                for number in 0...2 {
                    let link = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(process)/fd/\(number)")
                    #expect(link == "/dev/null", "\(number) of \(Processes.name(of: process))")
                }
            }
        }

        @Test("A withdrawal without standard descriptors is recorded and in force", arguments: closed)
        func revoke(closing: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            // Its answer may have no descriptor. The withdrawal does not depend on that.
            _ = try grantfs(fixture, closing: closing, "revoke", "a", "--view", "default")
            #expect(try fixture.list("--all").map(\.state) == ["revoked"])
            #expect(access(mountpoint + "/a", F_OK) != 0)
        }
    }
}
