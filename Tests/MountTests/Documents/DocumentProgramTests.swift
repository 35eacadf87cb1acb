import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Common programs. `make conformance` tests more of them, in every cache mode.
    @Suite struct ProgramsThatSave {
        private static let script = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../../.ci/conformance.d/saving.py")
            .standardized.path

        @Test(
            "A program killed at any system call of a save leaves the old or new document",
            .enabled(if: Machine.offers("strace"), Comment(rawValue: Machine.needs("strace"))),
            arguments: ["directory", "file"], ["g_file_", "vim backupcopy=auto"])
        func killed(form: String, program: String) throws {
            let fixture = try MountFixture()
            let mountpoint = try fixture.mount("saves", isNew: true)
            let room = try fixture.source("room")
            let words = ["/usr/bin/python3", Self.script, Programs.grantfs, "saves", mountpoint, room, form, program]
            let output = try Command.run(words, environment: fixture.environment)
            // GLib's binding or vim may be missing here, which it says.
            #expect(output.status == 0 || (output.status == 77 && output.text.contains("is not installed")), "\(output)")
            #expect(output.status == 77 || output.text.contains("steps: "))
        }
    }
}
