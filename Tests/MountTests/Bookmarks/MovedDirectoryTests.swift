import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct AGrantedDirectory {
        private func prepared() throws -> (MountFixture, String, String) {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("here".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.grant(source)
            return (fixture, source, try fixture.mount())
        }

        @Test("A granted directory is followed when it is moved while mounted")
        func movedLive() throws {
            let (fixture, source, mountpoint) = try prepared()
            let place = try fixture.directory("elsewhere/deep")
            try FileManager.default.moveItem(atPath: source, toPath: place + "/renamed")
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "here")
            let grant: GrantDocument = try fixture.grantfs("repair", "a", "--json").orThrow().decoded()
            #expect(grant.path == place + "/renamed")
            // Until the daemon has recorded the new place.
            #expect(["moved", "ok"].contains(grant.bookmark))
            try fixture.wait(until: "the bookmark is renewed") { try fixture.list().first?.bookmark == "ok" }
            #expect(try fixture.list().first?.path == place + "/renamed")
            #expect(try fixture.grantfs("log").orThrow().text.contains("\(source) to \(place)/renamed"))
            let status = try Command.run(["stat", mountpoint + "/a/x"])
            #expect(status.status == 0)
            try Command.run(["touch", mountpoint + "/a/new"]).orThrow()
            #expect(FileManager.default.fileExists(atPath: place + "/renamed/new"))
        }

        @Test(
            "A granted directory that was removed is never listed as empty",
            arguments: ["shared", "exclusive", "none"], ["rm -rf \"$1\"", "mv \"$1\" \"$2\""])
        func removedNotEmpty(cache: String, command: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            for name in 0..<10 { try Data("here".utf8).write(to: URL(fileURLWithPath: source + "/\(name)")) }
            try fixture.grant(source)
            let shown = try fixture.mount(options: "cache=\(cache)") + "/a"
            let elsewhere = "/dev/shm/" + UUID().uuidString
            try FileManager.default.createDirectory(atPath: elsewhere, withIntermediateDirectories: false)
            defer { try? FileManager.default.removeItem(atPath: elsewhere) }
            #expect(try FileManager.default.contentsOfDirectory(atPath: shown).count == 10)
            try Command.shell(command, source, elsewhere + "/a").orThrow()
            for _ in 0..<20 {
                let listed = try Command.run(["ls", shown])
                #expect(listed.status != 0 || !listed.text.isEmpty, "an empty listing without an error")
            }
            try fixture.wait(until: "its name is gone") {
                try FileManager.default.contentsOfDirectory(atPath: fixture.base + "/mount").isEmpty
            }
        }

        @Test(
            "A moved directory in a user's mount is found by that user's commands",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func movedOfAUser() throws {
            let fixture = try MountFixture(owner: try #require(Machine.plainUser))
            let source = try fixture.source("branch/a")
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            // No search below the nearest directory above would find it there.
            let place = try fixture.directory("source/other") + "/b"
            try Command.run(["mv", source, place]).orThrow()
            let listed = try #require(try fixture.list().first)
            #expect(listed.path == place && listed.state == "active" && ["moved", "ok"].contains(listed.bookmark), "\(listed)")
            #expect(try fixture.grantfs("status", "--json").orThrow().text.contains(place))
            // Another directory in the old place changes nothing. A silent mount changes only facts
            // that are known without it.
            _ = try fixture.source("branch/a")
            #expect(try fixture.list().first?.path == place)
            try fixture.wait(until: "the new place is recorded") { try fixture.list().first?.bookmark == "ok" }
            let daemon = try fixture.daemon(at: mountpoint)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            #expect(try fixture.list().first?.bookmark == "ok")
        }

        private func waitUntilRecorded(_ name: String, _ path: String, _ fixture: MountFixture) throws {
            try fixture.wait(until: "“\(name)” is recorded at \(path)") {
                try fixture.list().contains { $0.name == name && $0.path == path && $0.bookmark == "ok" }
            }
        }

        @Test("A granted directory is followed when a directory above it is renamed")
        func movedAbove() throws {
            let fixture = try MountFixture()
            let above = try fixture.directory("above")
            for directory in ["above/outer", "above/outer/inner"] { try fixture.grant(fixture.directory(directory)) }
            let mountpoint = try fixture.mount()
            // The daemon has seen it at its place and relies on that until an event comes.
            sleep(2)
            try FileManager.default.moveItem(atPath: above, toPath: above + "-2")
            // Read from the store's files, because a command writes to the store, and the daemon
            // would notice that write and look.
            try fixture.wait(until: "both new places are recorded") {
                let text = ["grants.sqlite", "grants.sqlite-wal"].map {
                    String(decoding: FileManager.default.contents(atPath: fixture.store + "/" + $0) ?? Data(), as: UTF8.self)
                }.joined()
                let inner = above + "-2/outer/inner"
                return text.contains(inner) && text.replacingOccurrences(of: inner, with: "").contains(above + "-2/outer")
            }
            #expect(try fixture.list().map(\.bookmark) == ["ok", "ok"])
            try waitUntilRecorded("inner", above + "-2/outer/inner", fixture)
            try waitUntilRecorded("outer", above + "-2/outer", fixture)
            // This one the daemon does itself.
            try Command.run(["mv", mountpoint + "/outer/inner", mountpoint + "/outer/other"]).orThrow()
            try waitUntilRecorded("inner", above + "-2/outer/other", fixture)
        }

        @Test(
            "A granted directory is followed when a directory above its mount is renamed",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func movedAboveItsMount() throws {
            let fixture = try MountFixture()
            let above = try fixture.directory("above")
            let volume = try fixture.directory("above/volume")
            try Command.run(["mount", "-t", "tmpfs", "grantfs-test", volume]).orThrow()
            defer { for place in [volume, above + "-2/volume"] { _ = try? Command.run(["umount", "-l", place]) } }
            try fixture.grant(fixture.directory("above/volume/a"))
            try fixture.mount()
            sleep(2)
            try FileManager.default.moveItem(atPath: above, toPath: above + "-2")
            try waitUntilRecorded("a", above + "-2/volume/a", fixture)
        }

        @Test("A granted directory that was moved without a mount is found again")
        func movedUnmounted() throws {
            let (fixture, source, mountpoint) = try prepared()
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try FileManager.default.moveItem(atPath: source, toPath: fixture.base + "/source/b")
            try fixture.mount()
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "here")
        }

        @Test("Another directory at the same path never replaces a granted directory")
        func replaced() throws {
            let (fixture, source, mountpoint) = try prepared()
            try FileManager.default.removeItem(atPath: source)
            _ = try fixture.source("a")
            try Data("another".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.wait(until: "the grant is unavailable") {
                try Command.run(["cat", mountpoint + "/a/x"]).errors.contains("No such file")
            }
            try fixture.wait(until: "it is not listed") { try Command.run(["ls", mountpoint]).text.isEmpty }
            let grant = try #require(try fixture.list().first)
            #expect(grant.state == "unavailable")
            #expect(["replaced", "missing"].contains(grant.bookmark))
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try fixture.mount()
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).errors.contains("No such file"))
        }
    }
}
