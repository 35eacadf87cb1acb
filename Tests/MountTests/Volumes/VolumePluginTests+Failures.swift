import Foundation
import Glibc
import TestSupport
import Testing

/// Processes and records that end or are damaged while volumes are in use.
extension MountTests.VolumePlugin {
    /// Kills the plugin, with the record of “one” as it is before the grant.
    func interrupt() throws {
        plugin.process.kill()
        let file = fixture.store + "/volumes/one.json"
        let text = try String(contentsOfFile: file, encoding: .utf8).replacingOccurrences(of: #""isMade":true"#, with: #""isMade":false"#)
        try text.write(toFile: file, atomically: false, encoding: .utf8)
    }

    @Test("A plugin that was killed finds its volumes, and their mounts go on")
    func killed() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let held = open(place + "/data/file", O_RDONLY | O_CLOEXEC)
        defer { close(held) }
        try restart()
        var byte: UInt8 = 0
        #expect(pread(held, &byte, 1, 0) == 1 && read(place + "/data/file") == 0)
        #expect(try done("Mount", "one", ["ID": "b"]).mountpoint == place)
        try done("Unmount", "one", ["ID": "b"])
        #expect(try done("Path", "one").mountpoint == place, "the first user is still on record")
        close(held)
        try done("Unmount", "one", ["ID": "a"])
        #expect(try done("Path", "one").mountpoint == "")
    }

    @Test("Daemons that have ended do not stay processes")
    func reaped() throws {
        try create("one", ["path": data])
        for _ in 0..<3 {
            try done("Mount", "one", ["ID": "a"])
            try done("Unmount", "one", ["ID": "a"])
        }
        // A daemon that was killed ended before its successor.
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        try fixture.killDaemon(at: place)
        try fixture.wait(until: "another daemon serves") { read(place + "/data/file") == 0 }
        try done("Unmount", "one", ["ID": "a"])
        try fixture.wait(until: "no process is left") {
            try done("Unmount", "one", ["ID": "a"])
            return try !Command.run(["ps", "-o", "stat=", "--ppid", "\(plugin.process.pid)"]).text.contains("Z")
        }
    }

    @Test("A second plugin of a store is refused")
    func second() throws {
        let other = try fixture.grantfs("volume-plugin", "--socket", fixture.base + "/other.sock")
        #expect(other.status == 1 && other.errors.contains("another volume-plugin serves them"), "\(other)")
        #expect(try names().isEmpty)
    }

    @Test("A daemon that was killed is replaced under the volume's users")
    func recovers() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let before = try fixture.daemon(at: place)
        kill(before, SIGKILL)
        #expect(read(place + "/data/file") == 0)
        #expect(try fixture.daemon(at: place) != before)
    }

    @Test("A mount that died with its supervisor is replaced for the next user")
    func dead() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let daemon = try fixture.daemon(at: place)
        for child in Processes.children(of: daemon) where Processes.name(of: child) == "grantfs-superv" { kill(child, SIGKILL) }
        try fixture.killDaemon(at: place)
        // Before the kernel has ended the connection it gives another error.
        try fixture.wait(until: "nothing serves the mount") { read(place + "/data/file") == ENOTCONN }
        #expect(try done("Mount", "one", ["ID": "b"]).mountpoint == place && read(place + "/data/file") == 0)
    }

    @Test("An attempt that was interrupted is completed or removed", arguments: [true, false])
    func interrupted(_ isRepeated: Bool) throws {
        try create("one", ["path": data])
        try interrupt()
        try fixture.grantfs("remove", "--view", "one", "data").orThrow()
        plugin.process = try Self.start(fixture, socket)
        #expect(try names() == ["one"] && !call("Mount", ["Name": "one", "ID": "a"]).error.isEmpty)
        if isRepeated {
            try create("one", ["path": data])
            #expect(read(try #require(try done("Mount", "one", ["ID": "a"]).mountpoint) + "/data/file") == 0)
            try done("Unmount", "one", ["ID": "a"])
        }
        try done("Remove", "one")
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
    }

    @Test("A full disk refuses a volume, and leaves nothing", .enabled(if: Identity.isRoot, "needs root"))
    func full() throws {
        let directory = fixture.store + "/volumes"
        try Command.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", directory]).orThrow()
        defer { _ = try? Command.run(["umount", "-l", directory]) }
        try Command.run(["dd", "if=/dev/zero", "of=" + directory + "/filler", "bs=4096", "count=2"]).orThrow()
        #expect(try refusal(of: "one", ["path": data]).contains("No space left"))
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        unlink(directory + "/filler")
        try create("one", ["path": data])
    }

    @Test("A damaged record is reported, and others are served")
    func damaged() throws {
        for name in ["one", "two"] { try create(name, ["path": data]) }
        try "{".write(toFile: fixture.store + "/volumes/one.json", atomically: false, encoding: .utf8)
        #expect(try names() == ["one", "two"])
        #expect(try call("Get", ["Name": "one"]).error.contains("the record of the volume “one” is damaged"))
        try done("Get", "two")
        try done("Remove", "one")
        #expect(try names() == ["two"] && fixture.list("--all").count == 2)
    }

    @Test("A mount without a record is not taken for another volume's")
    func leftOver() throws {
        try create("one", ["path": data])
        try done("Mount", "one", ["ID": "a"])
        unlink(fixture.store + "/volumes/one.json")
        try fixture.grantfs("remove", "--view", "one", "data").orThrow()
        try fixture.grantfs("grant", "--view", "ci", try fixture.source("more")).orThrow()
        try create("one", ["view": "ci"])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        #expect(try FileManager.default.contentsOfDirectory(atPath: place) == ["more"])
    }

    @Test("An interrupted attempt is not completed with other limits")
    func completed() throws {
        try create("one", ["path": data, "ro": "1", "ttl": "2h"])
        plugin.process.kill()
        let file = fixture.store + "/volumes/one.json"
        let text = try String(contentsOfFile: file, encoding: .utf8).replacingOccurrences(
            of: #""isMade":true"#, with: #""isMade":false"#)
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        try fixture.grantfs("set", "--view", "one", "data", "--access", "read-write").orThrow()
        plugin.process = try Self.start(fixture, socket)
        #expect(try refusal(of: "one", ["path": data, "ro": "1", "ttl": "2h"]).contains("it is of this directory, and read-write"))
        try fixture.grantfs("set", "--view", "one", "data", "--access", "read-only").orThrow()
        try create("one", ["path": data, "ro": "1", "ttl": "2h"])
    }

    @Test("A volume that another mount namespace has is not removed", .enabled(if: Identity.isRoot, "needs root"))
    func elsewhere() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let inside = try fixture.directory("inside")
        let script = "mount --bind '\(place)' '\(inside)' && umount '\(place)' && echo bound && sleep 1000"
        let container = try Child(["unshare", "-m", "--propagation", "private", "sh", "-c", script])
        defer { container.kill() }
        try container.expect("bound")
        #expect(try call("Remove", ["Name": "one"]).error.contains("it is in use by process"))
        try done("Unmount", "one", ["ID": "a"])
        #expect(try call("Remove", ["Name": "one"]).error.contains("it is in use by process"))
        container.kill()
        try fixture.wait(until: "it can be removed") { try call("Remove", ["Name": "one"]).error.isEmpty }
        #expect(try fixture.list("--all").isEmpty)
    }

    @Test("A socket does not replace another file")
    func file() throws {
        let file = fixture.base + "/file"
        try "kept".write(toFile: file, atomically: false, encoding: .utf8)
        plugin.process.kill()
        #expect(try fixture.grantfs("volume-plugin", "--socket", file).status == 1)
        #expect(try fixture.grantfs("metrics", "--listen", "unix:" + file).status == 1)
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "kept")
    }

    @Test("A volume in use is not removed")
    func busy() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let held = open(place + "/data/file", O_RDONLY | O_CLOEXEC)
        defer { close(held) }
        try done("Unmount", "one", ["ID": "a"])
        #expect(try call("Remove", ["Name": "one"]).error.contains("it is in use"))
        #expect(read(place + "/data/file") == 0)
    }
}
