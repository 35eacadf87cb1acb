import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Withdrawals by commands that are short of something.
    @Suite struct LimitedCommands {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            mountpoint = try fixture.mount()
        }

        private func grantfs(limits: String, _ arguments: String...) throws -> Output {
            try Command.run(
                ["bash", "-c", limits + "; exec \"$@\"", "bash", Programs.grantfs] + arguments, environment: fixture.environment)
        }

        private var isReadable: Bool {
            get throws { try Command.run(["cat", mountpoint + "/a/x"]).text == "inside\n" }
        }

        @Test("A withdrawal beyond RLIMIT_FSIZE shuts the grant and reports it as not recorded")
        func fileSize() throws {
            let output = try grantfs(limits: "ulimit -f 4", "revoke", "a")
            #expect(output.status == 1 && output.errors.contains("not recorded"), "\(output)")
            #expect(try !isReadable)
            // It stays so when the daemon has looked at the store again.
            try grantfs(limits: "true", "grant", try fixture.source("b")).orThrow()
            #expect(try !isReadable)
        }

        @Test("A restoration opens a grant whose withdrawal was not recorded")
        func restored() throws {
            _ = try grantfs(limits: "ulimit -f 4", "revoke", "a")
            #expect(try !isReadable)
            let output = try grantfs(limits: "true", "restore", "a").orThrow()
            #expect(output.text.contains("restored") || output.errors.contains("restored"), "\(output)")
            #expect(try isReadable)
            let again = try grantfs(limits: "true", "restore", "a").orThrow()
            #expect(!(again.text + again.errors).contains("restored"), "\(again)")
        }

        @Test("A recorded withdrawal never exits with 1, at any limit of descriptors", arguments: 5...14)
        func descriptors(limit: Int) throws {
            let output = try grantfs(limits: "ulimit -n \(limit)", "revoke", "a")
            let state = try fixture.list("--all").first?.state
            #expect([0, 3].contains(output.status) == (state == "revoked"), "\(output), and the grant is \(state ?? "gone")")
        }
    }
}
