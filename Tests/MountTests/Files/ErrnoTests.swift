import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The table “attempt | result”, and the visible state of a mount.
    @Suite struct ErrnoTests {
        private func prepared(_ options: String? = nil) throws -> (MountFixture, String) {
            let fixture = try MountFixture()
            for name in ["a", "b"] {
                let source = try fixture.source(name)
                try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/x"))
                try fixture.grant(source)
            }
            return (fixture, try fixture.mount(options: options))
        }

        @Test("An ungranted name gives ENOENT, and a revoked one gives EACCES")
        func names() throws {
            let (fixture, mount) = try prepared()
            try expectCall("stat", mount + "/never", gives: "ENOENT")
            try fixture.revoke("a")
            for path in ["/a", "/a/x", "/a/never", "/a/x/y"] { #expect(try Probe.call("stat", mount + path) == "EACCES", "\(path)") }
            try expectCall("list", mount + "/a", gives: "EACCES")
            try expectCall("create", mount + "/a/new", gives: "EACCES")
            #expect(try Command.run(["ls", mount]).lines == ["b"])
        }

        @Test("A change of the view's root directory gives EACCES")
        func root() throws {
            let (fixture, mount) = try prepared()
            defer { fixture.finish() }
            try expectCall("create", mount + "/new", gives: "EACCES")
            try expectCall("mkdir", mount + "/new", gives: "EACCES")
            try expectCall("mkfifo", mount + "/new", gives: "EACCES")
            try expectCall("symlink", "x", mount + "/new", gives: "EACCES")
            try expectCall("rmdir", mount + "/a", gives: "EACCES")
            try expectCall("rename", mount + "/a", mount + "/c", gives: "EACCES")
            try expectCall("rename", mount + "/a", mount + "/b", gives: "EACCES")
            try expectCall("chmod", mount, "700", gives: "EACCES")
        }

        @Test("A rename or link between two grants gives EXDEV")
        func acrossGrants() throws {
            let (fixture, mount) = try prepared()
            defer { fixture.finish() }
            try expectCall("rename", mount + "/a/x", mount + "/b/y", gives: "EXDEV")
            try expectCall("exchange", mount + "/a/x", mount + "/b/x", gives: "EXDEV")
            try expectCall("noreplace", mount + "/a/x", mount + "/b/y", gives: "EXDEV")
            try expectCall("link", mount + "/a/x", mount + "/b/y", gives: "EXDEV")
            try Command.run(["mv", mount + "/a/x", mount + "/b/moved"]).orThrow()
            #expect(try Command.run(["cat", mount + "/b/moved"]).text == "text")
        }

        @Test("Every change in a read-only grant or mount gives EROFS", arguments: ["grant", "mount"])
        func readOnly(by what: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try FileManager.default.createDirectory(atPath: source + "/d", withIntermediateDirectories: false)
            if what == "grant" { try fixture.grant(source, name: nil, view: nil, "--read-only") } else { try fixture.grant(source) }
            let mount = try fixture.mount(options: what == "mount" ? "ro" : nil) + "/a"
            let tried = [
                try Probe.call("create", mount + "/new"), try Probe.call("mkdir", mount + "/new"),
                try Probe.call("mkfifo", mount + "/new"), try Probe.call("symlink", "x", mount + "/new"),
                try Probe.call("link", mount + "/x", mount + "/new"), try Probe.call("rename", mount + "/x", mount + "/new"),
                try Probe.call("exchange", mount + "/x", mount + "/d"), try Probe.call("unlink", mount + "/x"),
                try Probe.call("rmdir", mount + "/d"), try Probe.call("chmod", mount + "/x", "600"),
                try Probe.call("truncate", mount + "/x"), try Probe.call("utimens", mount + "/x"),
                try Probe.call("open-for-writing", mount + "/x"), try Probe.call("setxattr", mount + "/x", "user.a"),
            ]
            #expect(tried == Array(repeating: "EROFS", count: tried.count))
            #expect(try Command.run(["cat", mount + "/x"]).text == "text")
        }

        @Test(
            "Attributes of security.* and trusted.* are read-only and not listed",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func extendedAttributes() throws {
            let (fixture, mount) = try prepared()
            let file = fixture.base + "/source/a/x"
            try expectCall("setxattr", file, "trusted.known", gives: "OK")
            try expectCall("setxattr", mount + "/a/x", "security.mine", gives: "EPERM")
            try expectCall("setxattr", mount + "/a/x", "trusted.mine", gives: "EPERM")
            try expectCall("removexattr", mount + "/a/x", "trusted.known", gives: "EPERM")
            try expectCall("getxattr", mount + "/a/x", "security.capability", gives: "ENODATA")
            try expectCall("setxattr", mount + "/a/x", "user.mine", gives: "OK")
            if Command.exists("getfattr") {
                let listed = try Command.run(["getfattr", "-m", "-", mount + "/a/x"]).text
                #expect(listed.contains("user.mine") && !listed.contains("trusted.") && !listed.contains("security."))
            }
        }

        @Test("/proc/mounts shows the type and the view, and statfs(2) the source")
        func mountTable() throws {
            let (fixture, mount) = try prepared()
            let line = try Command.run(["findmnt", "-n", "-o", "SOURCE,FSTYPE,OPTIONS", mount]).orThrow().text
            let fields = line.split(whereSeparator: \.isWhitespace)
            #expect(fields.count == 3 && fields[0] == "default" && fields[1] == "fuse.grantfs")
            #expect(fields.last?.contains("nosuid") == true && fields.last?.contains("nodev") == true)
            let format = ["stat", "-f", "-c", "%b %c %s %l"]
            // Where the number of inodes follows the free space, what others write changes it.
            try fixture.wait(until: "both say the same") {
                try Command.run(format + [mount + "/a"]).text == Command.run(format + [fixture.base + "/source/a"]).text
            }
            #expect(try Int(Command.run(["stat", "-f", "-c", "%b", mount]).trimmed) ?? 0 > 0)
        }

        @Test("`grantfs unmount`, `umount` and `fusermount3 -u` end the daemon", arguments: ["unmount", "umount", "fusermount3"])
        func unmounting(with program: String) throws {
            if program == "umount" && !Identity.isRoot { return }
            let (fixture, mount) = try prepared()
            let daemon = try fixture.daemon(at: mount)
            switch program {
            case "unmount": try fixture.grantfs("unmount", mount).orThrow()
            // A process that reads all mounts keeps it busy for a moment.
            case "umount": try fixture.wait(until: "it is unmounted") { try Command.run(["umount", mount]).status == 0 }
            default: try fixture.wait(until: "it is unmounted") { try Command.run(["fusermount3", "-u", mount]).status == 0 }
            }
            #expect(fixture.mountpoints.isEmpty)
            // Other tests' mount namespaces have the mount for as long as they last.
            try fixture.wait(until: "the daemon has ended", within: 120) { !Processes.isRunning(daemon) }
            #expect(try fixture.status().mounts.isEmpty)
            try fixture.mount()
            #expect(try Command.run(["cat", mount + "/a/x"]).text == "text")
        }

        @Test("SIGTERM, SIGINT and SIGHUP end the daemon and the mount", arguments: [SIGTERM, SIGINT, SIGHUP])
        func signals(signal: Int32) throws {
            let (fixture, mount) = try prepared()
            let daemon = try fixture.daemon(at: mount)
            kill(daemon, signal)
            try fixture.wait(until: "the daemon has ended") { !Processes.isRunning(daemon) }
            #expect(fixture.mountpoints.isEmpty)
        }

        @Test("A change on the host shows in the mount, and one in the mount on the host")
        func besideTheMount() throws {
            let (fixture, mount) = try prepared()
            let source = fixture.base + "/source/a"
            #expect(try Command.run(["cat", mount + "/a/x"]).text == "text")
            try Command.shell("printf 'longer text' > \"$1/x\"; mkdir \"$1/d\"; touch \"$1/d/e\"", source)
            pause(milliseconds: 1100)
            #expect(try Command.run(["cat", mount + "/a/x"]).text == "longer text")
            #expect(try Command.run(["ls", mount + "/a"]).lines == ["d", "x"])
            try Command.shell("printf more >> \"$1/x\"; mv \"$1/d\" \"$1/f\"", mount + "/a")
            #expect(try Command.run(["cat", source + "/x"]).text == "longer textmore")
            #expect(try Command.run(["ls", source + "/f"]).lines == ["e"])
        }

        @Test("Two grants of one file show the same data and are revoked separately")
        func twoGrantsOfOneFile() throws {
            let fixture = try MountFixture()
            let outer = try fixture.source("outer")
            let inner = try fixture.source("outer/inner")
            try Data("one".utf8).write(to: URL(fileURLWithPath: inner + "/x"))
            try fixture.grant(outer)
            try fixture.grant(inner)
            let mount = try fixture.mount()
            #expect(try Command.run(["cat", mount + "/inner/x", mount + "/outer/inner/x"]).text == "oneone")
            try Command.shell("printf second > \"$1/inner/x\"", mount)
            #expect(try Command.run(["cat", mount + "/outer/inner/x"]).text == "second")
            try fixture.revoke("outer")
            try expectCall("stat", mount + "/outer/inner/x", gives: "EACCES")
            #expect(try Command.run(["cat", mount + "/inner/x"]).text == "second")
        }
    }
}
