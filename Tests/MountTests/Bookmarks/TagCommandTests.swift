import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct ATaggedGrant {
        private func prepared(_ names: [String] = ["a"]) throws -> (MountFixture, String) {
            let fixture = try MountFixture()
            for name in names {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/x"))
                try fixture.grant(source, name: name, view: nil, "--tag")
            }
            return (fixture, try fixture.mount())
        }

        private func tag(_ directory: String) throws -> String {
            try Command.run(["getfattr", "--only-values", "-n", "user.grantfs.tag", directory]).text
        }

        private func shows(_ path: String) throws -> String? {
            let output = try Command.run(["cat", path])
            return output.status == 0 ? output.text : nil
        }

        @Test("A tagged grant has a tag on its directory that copies do not share")
        func tagged() throws {
            let (fixture, _) = try prepared()
            let source = fixture.base + "/source/a"
            let own = try tag(source)
            #expect(own.count == 32)
            #expect(try fixture.grantfs("repair", "a", "--recorded").orThrow().text.contains("\"tag\":\"\(own)\""))
            try fixture.grant(source, name: "b", view: "second", "--tag")
            #expect(try tag(source) == own)
            try Command.run(["cp", "-a", source, fixture.base + "/source/copy"]).orThrow()
            #expect(try tag(fixture.base + "/source/copy") == own)
            #expect(try fixture.list().allSatisfy { $0.bookmark == "ok" && $0.path == source })
            try fixture.grant(fixture.base + "/source/copy", name: "copy", view: nil, "--tag")
            #expect(try tag(fixture.base + "/source/copy") != own)
            // A grant that is refused leaves the directory as it was.
            let plain = try fixture.source("plain")
            #expect(try fixture.grantfs("grant", plain, "--name", "a", "--tag").status == 1)
            #expect(try tag(plain).isEmpty)
        }

        @Test("A tagged grant is refused on a directory without extended attributes", .enabled(if: Identity.isRoot))
        func withoutAttributes() throws {
            let fixture = try MountFixture()
            let place = try fixture.directory("source/closed")
            try fixture.mountOther(["mount", "-t", "ramfs", "none"], at: place)
            let refused = try fixture.grantfs("grant", place, "--tag")
            #expect(refused.status == 1 && refused.errors.contains("takes no extended attributes"), "\(refused)")
            #expect(try fixture.list("--all").isEmpty)
            try fixture.grant(place)
        }

        @Test("A directory restored from a backup is available only after `repair --confirm`")
        func restored() throws {
            let (fixture, mountpoint) = try prepared()
            let source = fixture.base + "/source/a"
            let before = try #require(try fixture.list().first)
            let backup = fixture.base + "/outside/backup.tar"
            try Command.run(["tar", "--xattrs", "-C", fixture.base + "/source", "-cf", backup, "a"]).orThrow()
            try FileManager.default.removeItem(atPath: source)
            let place = try fixture.directory("source/restored")
            try Command.run(["tar", "--xattrs", "-C", place, "-xf", backup]).orThrow()
            let found = try #require(try fixture.list().first)
            #expect(found.bookmark == "replaced" && found.state == "unavailable" && found.copy == place + "/a", "\(found)")
            #expect(try fixture.grantfs("repair").orThrow().text.contains(place + "/a"))
            #expect(try fixture.grantfs("repair", "--prune").orThrow().text.contains("removing") == false)
            try fixture.restore("a")
            try fixture.wait(until: "it is hidden") { try Command.run(["ls", mountpoint]).text.isEmpty }
            #expect(try shows(mountpoint + "/a/x") == nil)

            let confirmed = try fixture.grantfs("repair", "a", "--confirm", place + "/a").orThrow()
            #expect(confirmed.errors.contains(place + "/a"))
            #expect(try shows(mountpoint + "/a/x") == "a")
            let after = try #require(try fixture.list().first)
            #expect(after.id == before.id && after.bookmark == "ok" && after.path == place + "/a" && after.copy == nil, "\(after)")
            // The new bookmark has the tag as well.
            try Command.run(["cp", "-a", place + "/a", source]).orThrow()
            try FileManager.default.removeItem(atPath: place)
            #expect(try fixture.list().first?.copy == source)
        }

        @Test("A tag on another directory gives a program no access")
        func planted() throws {
            let (fixture, mountpoint) = try prepared(["a", "b"])
            // Read through the one grant, written through the other.
            let own = try tag(mountpoint + "/a")
            #expect(own.count == 32)
            for name in ["one", "two"] {
                try Command.run(["mkdir", mountpoint + "/b/" + name]).orThrow()
                try Command.run(["setfattr", "-n", "user.grantfs.tag", "-v", own, mountpoint + "/b/" + name]).orThrow()
            }
            #expect(try fixture.list().allSatisfy { $0.bookmark == "ok" && $0.copy == nil })
            try FileManager.default.removeItem(atPath: fixture.base + "/source/a")
            #expect(try fixture.list().map(\.bookmark) == ["ambiguous", "ok"].sorted())
            #expect(try fixture.grantfs("repair", "a", "--confirm", fixture.base + "/source/b/one").status == 1)
            try Command.run(["rmdir", mountpoint + "/b/two"]).orThrow()
            let planted = try #require(try fixture.list().first)
            #expect(planted.bookmark == "replaced" && planted.copy == fixture.base + "/source/b/one")
            for _ in 0..<2 {
                try fixture.wait(until: "it is hidden") { try Command.run(["ls", mountpoint]).text == "b\n" }
                #expect(try Command.run(["ls", mountpoint + "/a"]).status != 0)
                try fixture.restore("a")
            }
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try fixture.mount()
            #expect(try Command.run(["ls", mountpoint]).text == "b\n")
        }
    }
}
