import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `grantfs undo` of root in directories where other users may change names.
    @Suite(
        .enabled(if: Machine.hasSandboxes && TestSupport.Identity.isRoot, "needs root, and bubblewrap that can make a sandbox"))
    struct UndoOwnershipTests {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
        }

        private struct Listed: Decodable {
            let id: String
        }

        /// Runs a script with a snapshot. Returns the snapshot's id.
        private func run(_ script: String) throws -> String {
            try fixture.grantfs(["run", "--snapshot", "--grant", source, "--", "sh", "-euc", "cd '\(source)'; " + script]).orThrow()
            return try #require(try fixture.grantfs("diff", "--list", "--json").orThrow().decoded(as: [Listed].self).first).id
        }

        private func status(_ path: String) throws -> stat {
            var status = stat()
            guard lstat(path, &status) == 0 else { throw TestFailure("lstat \(path): \(String(cString: strerror(errno)))") }
            return status
        }

        @Test("An undo of mode or owner leaves the file alone that a process has open", arguments: [0o4755, 0o2755, 0o640] as [mode_t])
        func newInode(mode: mode_t) throws {
            let path = source + "/tool"
            try Data("contents".utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, mode)
            let id = try run("cp -p tool copy; chmod 666 copy; mv -f copy tool")
            let held = open(path, O_RDWR)
            defer { close(held) }
            try fixture.grantfs("undo", id).orThrow()
            var found = stat()
            #expect(fstat(held, &found) == 0 && found.st_mode & 0o7777 == 0o666, "\(String(found.st_mode, radix: 8))")
            let made = try status(path)
            #expect(made.st_ino != found.st_ino && made.st_mode & 0o7777 == mode, "\(String(made.st_mode, radix: 8))")
        }
    }
}
