import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Where a view is mounted.
    @Suite struct AMountpoint {
        @Test("A mountpoint may be any path of bytes", arguments: [false, true])
        func notUTF8(byUser: Bool) throws {
            if byUser, !Machine.usersCanMount { return }
            let fixture = try MountFixture(owner: byUser ? try #require(Machine.plainUser) : .current)
            let source = try fixture.source("a")
            try Data("inside".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            let place = try fixture.directory("places")
            chown(place, fixture.owner.uid, fixture.owner.gid)
            // After any failure, no mount is left.
            let script = """
                export GRANTFS_STORE="$3"; at="$1"/$'a \\xff\\nb'; mkdir "$at"
                "$2" mount default "$at" || exit
                cat "$at/a/x"; printf '\\n'
                "$2" status --json | grep -o '"mountpointHex":"[^"]*ff0a62"' | wc -l
                "$2" revoke a >&2; cat "$at/a/x" 2>/dev/null || echo refused
                "$2" unmount "$at" || umount "$at"
                findmnt --noheadings --mountpoint "$at" || rmdir "$at" && echo gone
                """
            let output = try Command.run(
                ["bash", "-c", script, "bash", place, Programs.grantfs, fixture.store], as: fixture.owner, within: 30)
            #expect(output.lines == ["inside", "1", "refused", "gone"], "\(output)")
        }

        @Test("Exactly one of several concurrent `mount` commands gets a mountpoint")
        func turns() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let place = try fixture.mount()
            for _ in 0..<6 {
                // A process that reads all mounts, like lsof, keeps it busy for a moment.
                try fixture.wait(until: "it is unmounted") { try fixture.grantfs("unmount", place).status == 0 }
                let commands = try (0..<5).map { _ in
                    try Child([Programs.grantfs, "mount", "default", place], environment: fixture.environment, separateErrors: true)
                }
                #expect(commands.map { $0.wait(within: 60) ?? -1 }.sorted() == [0, 1, 1, 1, 1])
                let table = Processes.kernelText("/proc/self/mountinfo")
                #expect(table.split(separator: "\n").count { $0.contains(" \(place) ") } == 1)
                #expect(try Command.run(["ls", place]).lines == ["a"])
            }
            // Nothing is left behind in the store.
            #expect(try Command.shell("ls \"$1/run\" | grep -c mounting || true", fixture.store).trimmed == "0")
        }

        @Test(
            "An unmount names a process in another namespace that keeps the mount",
            .enabled(if: Identity.isRoot && Machine.offers("unshare"), "needs root"))
        func elsewhere() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let place = try fixture.mount()
            let other = try Child(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo there; exec cat"])
            try other.expect("there")
            let said = try fixture.grantfs("unmount", place).orThrow().errors
            #expect(said.contains("that of process \(other.pid) (cat), at \(place)"), "\(said)")
            let status = try fixture.grantfs("status").orThrow().text
            #expect(status.contains("held by \(other.pid) cat (mount)"), "\(status)")
            let inside = ["nsenter", "-t", "\(other.pid)", "-m"]
            try Command.run(inside + ["ls", place + "/a"]).orThrow()
            try Command.run(inside + ["umount", place]).orThrow()
            try fixture.wait(until: "the daemon has ended") { try fixture.grantfs("status").text.contains("held by") == false }
        }
    }
}
