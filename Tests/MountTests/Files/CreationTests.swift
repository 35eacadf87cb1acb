import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// open(2) with O_CREAT, where the name is there although the kernel believes that it is not.
    @Suite struct CreationTests {
        /// As a user: makes sure that the kernel keeps the absence of the name, waits, and opens it for reading and writing.
        private static let opener =
            "[ ! -e $2 ]; echo ready; read go; if exec 4<> $2; then echo \"read: $(cat <&4)\"; else echo refused; fi"

        @Test(
            "A file that appeared on the host is opened with its own permissions",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root and a plain user to act as"),
            arguments: ["shared", "exclusive"])
        func permissions(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            chmod(source, 0o777)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other,cache=\(cache)") + "/a"
            for (mode, expected) in [(0o600, "refused"), (0o666, "read: mine")] {
                let opener = try Child(
                    ["bash", "-c", "cd \"$1\" || exit; " + Self.opener, "bash", mount, "f\(mode)"], identity: Machine.plainUser!)
                try opener.expect("ready")
                // By another name first, so that it is there at once with its contents and its mode.
                try Data("mine".utf8).write(to: URL(fileURLWithPath: source + "/new"))
                chmod(source + "/new", mode_t(mode))
                rename(source + "/new", source + "/f\(mode)")
                opener.send("go")
                try opener.expect(expected)
            }
        }

        @Test("A link that appeared on the host is followed natively")
        func otherTypes() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            try Data("behind the link".utf8).write(to: URL(fileURLWithPath: source + "/target"))
            let opener = try Child(["bash", "-c", "cd \"$1\" || exit; " + Self.opener, "bash", mount, "f"])
            try opener.expect("ready")
            symlink("target", source + "/f")
            opener.send("go")
            try opener.expect("read: behind the link")
        }
    }
}
