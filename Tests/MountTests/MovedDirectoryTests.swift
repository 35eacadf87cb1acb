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

        @Test("is followed when it is renamed or moved while mounted")
        func movedLive() throws {
            let (fixture, source, mountpoint) = try prepared()
            let place = try fixture.directory("elsewhere/deep")
            try FileManager.default.moveItem(atPath: source, toPath: place + "/renamed")
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "here")
            let grant: GrantDocument = try fixture.grantfs("resolve", "a", "--json").orThrow().decoded()
            #expect(grant.path == place + "/renamed")
            // Until the daemon has recorded the new place.
            #expect(["moved", "ok"].contains(grant.bookmark))
            try fixture.wait(until: "the bookmark is renewed", within: 3) { try fixture.list().first?.bookmark == "ok" }
            #expect(try fixture.list().first?.path == place + "/renamed")
            #expect(try fixture.grantfs("log").orThrow().text.contains("\(source) to \(place)/renamed"))
            let status = try Command.run(["stat", mountpoint + "/a/x"])
            #expect(status.status == 0)
            try Command.run(["touch", mountpoint + "/a/new"]).orThrow()
            #expect(FileManager.default.fileExists(atPath: place + "/renamed/new"))
        }

        @Test("is found again when it was moved while nothing was mounted")
        func movedUnmounted() throws {
            let (fixture, source, mountpoint) = try prepared()
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try FileManager.default.moveItem(atPath: source, toPath: fixture.base + "/source/b")
            try fixture.mount()
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "here")
        }

        @Test("is never replaced by another one at its path")
        func replaced() throws {
            let (fixture, source, mountpoint) = try prepared()
            try FileManager.default.removeItem(atPath: source)
            _ = try fixture.source("a")
            try Data("another".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            try fixture.wait(until: "the grant is unavailable") {
                try Command.run(["cat", mountpoint + "/a/x"]).errors.contains("No such file")
            }
            try fixture.wait(until: "it is not listed", within: 5) { try Command.run(["ls", mountpoint]).text.isEmpty }
            let grant = try #require(try fixture.list().first)
            #expect(grant.state == "unavailable")
            #expect(["replaced", "missing"].contains(grant.bookmark))
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try fixture.mount()
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).errors.contains("No such file"))
        }
    }
}
