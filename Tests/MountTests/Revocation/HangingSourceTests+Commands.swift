import Foundation
import TestSupport
import Testing

// Work beside it while it hangs.
extension MountTests.AHangingSource {
    @Test("Commands end and report a hanging source instead of waiting for it")
    func commandsThatLook() throws {
        let mounted = try Mounted()
        defer { mounted.source.end() }
        let second = try HangingSource("second", in: mounted.fixture)
        defer { second.end() }
        try mounted.fixture.grant(second.directory)
        for source in [mounted.source, second] { try source.hang() }
        let status = try mounted.fixture.grantfs("status", "--json")
        #expect(status.status == 0, "\(status)")

        let list = try mounted.fixture.grantfs("list", "--json").orThrow()
        let grants: [GrantDocument] = try list.decoded()
        #expect(grants.map(\.bookmark) == ["ok", "unavailable", "unavailable"])
        #expect(grants.map(\.state) == ["active", "unavailable", "unavailable"])
        #expect(grants[1].reason == "its filesystem does not answer")
        let commands: [(words: [String], status: Int32, says: String)] = [
            (["repair", "hung"], 0, "does not answer"), (["list", "hung"], 0, "does not answer"),
            (["repair"], 0, "its filesystem to answer"),
            (["repair", "hung", "--confirm", mounted.source.directory], 1, "does not answer"),
            (["grant", mounted.source.directory, "--name", "x"], 1, "does not answer"),
            (["set", "hung", "--expires", "7d", "--json"], 0, "does not answer"), (["restore", "hung"], 0, "active already: hung"),
            (["revoke", "--path", mounted.source.directory + "/below/../below"], 0, "revoked hung"),
            (["revoke", "--path", mounted.fixture.base + "/source/good"], 0, "revoked good"),
        ]
        for command in commands {
            let output = try mounted.fixture.grantfs(command.words)
            #expect(output.status == command.status, "\(output)")
            #expect((output.text + output.errors).contains(command.says), "\(output)")
        }
        #expect(try mounted.fixture.list().map(\.name) == ["second"])
        for source in [mounted.source, second] { source.goOn() }
        try mounted.fixture.wait(until: "they answer again") {
            try mounted.fixture.list("--all").map(\.bookmark) == ["ok", "weak", "weak"]
        }
    }

    @Test("A mount is made and other grants are served while a source hangs")
    func mountedWhileItHangs() throws {
        let mounted = try Mounted()
        defer { mounted.source.end() }
        let fixture = mounted.fixture
        try fixture.grantfs("unmount", mounted.mountpoint).orThrow()
        try mounted.source.hang()
        try fixture.mount()
        // A grant behind a hanging one has a tenth of a second to be found before the mount is
        // ready. Otherwise it shows later.
        try fixture.wait(until: "the other grant is shown") { try Command.run(["ls", mounted.mountpoint], within: 60).text == "good\n" }
        try mounted.expectOthersGoOn("mounted")
        try fixture.grant(try fixture.source("third"))
        try fixture.wait(until: "the new one is shown") { try Command.run(["ls", mounted.mountpoint], within: 60).text == "good\nthird\n" }
        // The thread that also inspects hanging directories finds and follows it.
        let third = fixture.base + "/source/third"
        try FileManager.default.moveItem(atPath: third, toPath: third + "-moved")
        try fixture.wait(until: "the new place is recorded") {
            try fixture.grantfs("log").orThrow().text.contains("third-moved")
        }
        try fixture.grant(try fixture.source("fourth"), name: nil, view: nil, "--expires", "1s")
        try fixture.wait(until: "it has expired by itself") {
            try Command.run(["ls", mounted.mountpoint + "/fourth"], within: 60).errors.contains("Permission denied")
        }
        mounted.source.goOn()
        try fixture.wait(until: "what hung is shown") { try Command.run(["ls", mounted.mountpoint], within: 60).text.contains("hung") }
    }

    @Test("The daemon follows a moved directory while another source hangs")
    func followedBesideIt() throws {
        let mounted = try Mounted()
        defer { mounted.source.end() }
        let fixture = mounted.fixture
        let good = fixture.base + "/source/good"
        try mounted.source.hang()
        // By now the inspection is in progress.
        pause(milliseconds: 2500)
        try FileManager.default.moveItem(atPath: good, toPath: good + "-moved")
        try fixture.wait(until: "the new place is recorded") { try fixture.grantfs("log").orThrow().text.contains("good-moved") }
        mounted.source.goOn()
        try fixture.wait(until: "it is found") { try fixture.list().map(\.state) == ["active", "active"] }
    }

    @Test("A hanging source delays no revocation or restoration of another grant")
    func otherGrants() throws {
        let mounted = try Mounted(files: [("file", 4096)])
        defer { mounted.source.end() }
        let caller = try Probe.role(["late", "read", mounted.hung + "/file", "4"])
        try caller.expect("ready")
        try mounted.source.hang()
        caller.send("now")
        try mounted.fixture.wait(until: "the callers are stuck") { try mounted.inFlight >= 1 }
        // The best of several, because the machine has other work.
        var best = Double.infinity
        for _ in 0..<8 where best >= 500 {
            let revoked = try mounted.fixture.revoke("good")
            #expect(revoked[0].isConfirmed && revoked[0].mounts[0].pending == 0)
            best = min(best, revoked[0].mounts[0].milliseconds)
            try expectCall("stat", mounted.good, gives: "EACCES")
            try mounted.fixture.restore("good")
        }
        #expect(best < 500)
        try mounted.fixture.grant(try mounted.fixture.source("third"))
        try mounted.expectOthersGoOn("restored")
        #expect(try Command.run(["ls", mounted.mountpoint], within: 60).lines == ["good", "hung", "third"])
        mounted.source.goOn()
        for _ in 0..<4 { #expect(caller.line() == "OK") }
    }

    @Test("A revocation that waits for a source reports its progress")
    func progress() throws {
        let mounted = try Mounted(cache: "exclusive", files: [("mapped", 64 * 4096)])
        defer { mounted.source.end() }
        struct Event: Decodable {
            let event: String
            let done: Int
            let total: Int?
        }
        // Dirty data cannot be written back within the two seconds that it has. A command that is
        // stopped for as long does not see that.
        var isSaid = false
        for _ in 0..<4 where !isSaid {
            try mounted.source.hang("write")
            let writer = try Probe.role(["dirty", mounted.hung + "/mapped"])
            try writer.expect("ready")
            let output = try mounted.fixture.grantfs("revoke", "hung", "--json").orThrow()
            let events = try output.errors.split(separator: "\n").map { try JSONDecoder().decode(Event.self, from: Data($0.utf8)) }
            isSaid = events.contains { $0.event == "flushing" && $0.total == nil }
            #expect(events.allSatisfy { ["draining", "flushing", "forgetting"].contains($0.event) })
            #expect(try output.decoded(as: [RevocationDocument].self).count == 1)
            writer.send("go on")
            #expect(writer.line() != nil)
            mounted.source.goOn()
            try mounted.fixture.restore("hung")
            try mounted.fixture.wait(until: "it is back") { try Probe.call("stat", mounted.hung + "/mapped") == "OK" }
        }
        #expect(isSaid)
    }
}
