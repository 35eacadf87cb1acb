import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct TheLogOfAFleet {
        private struct Entry: Decodable {
            let event: String
            let user: String
            let machine: String
            let uid: Int
            let name: String?
            let host: String?
            let hosts: String?
        }

        @Test("The log of a fleet names the user of each grant, revocation and invitation")
        func entries() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.administer("grant", "--fleet", try fleet.source("y"), "--view", "v", "--name", "y").orThrow()
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            try fleet.administer("remove", "--fleet", "y").orThrow()
            let all = try fleet.administer("log", "--fleet", "--json").orThrow().decoded(as: [Entry].self)
            #expect(
                all.map { "\($0.event) \($0.name ?? $0.host ?? "-")" } == [
                    "invited h1", "granted x", "granted y", "revoked x", "removed y",
                ])
            #expect(all.allSatisfy { $0.user == "root" && $0.uid == Int(getuid()) && !$0.machine.isEmpty })
            for selector in ["x", String(id.prefix(12))] {
                let own = try fleet.administer("log", "--fleet", "--grant", selector).orThrow()
                #expect(
                    own.lines.count == 2 && own.lines[1].contains("revoked x") && own.lines[1].contains("[root on \(all[0].machine), uid"),
                    "\(own)")
            }
            #expect(try fleet.administer("log", "--fleet", "--since", "1h", "--json").orThrow().decoded(as: [Entry].self).count == 5)
            let unknown = try fleet.administer("log", "--fleet", "--grant", "z")
            #expect(unknown.status == 1 && unknown.errors.contains("tells of no grant"), "\(unknown)")
            // An administrator by name, and what the host keeps.
            let file = fleet.files.base + "/second"
            try fleet.administer("fleet", "invite", "second", "--administrator", "--output", file).orThrow()
            try Command.run(
                [Programs.grantfs, "restore", "--fleet", "x"], environment: ["GRANTFS_STORE": fleet.store("second"), "GRANTFS_FLEET": file]
            ).orThrow()
            #expect(try fleet.administer("log", "--fleet", "--json").orThrow().decoded(as: [Entry].self).last?.user == "second")
            let kept = try fleet.on("h1", "log").orThrow()
            #expect(kept.text.contains("by the fleet: second on \(all[0].machine), uid \(getuid())"), "\(kept)")
            let shown = try fleet.administer("repair", "--fleet", "x").orThrow()
            #expect(shown.text.contains("by second on") && shown.text.contains("as the fleet says"), "\(shown)")
        }

        @Test("The log of a fleet follows changes, and hosts that come, go or have a problem")
        func follows() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let outputs = try [["-n", "100"], ["--json"]].map { options in
                let file = fleet.files.base + "/follow" + options[0]
                let words =
                    ["sh", "-c", "exec \"$@\" >\"$OUT\" 2>&1", "sh", Programs.grantfs, "log", "--fleet", "--follow"] + options
                return (file, try Child(words, environment: ["GRANTFS_STORE": fleet.store("administrator"), "OUT": file]))
            }
            defer { outputs.forEach { $0.1.kill() } }
            let text = { (index: Int) in (try? String(contentsOfFile: outputs[index].0, encoding: .utf8)) ?? "" }
            try fleet.files.wait(until: "the log is read") { text(0).contains("invited host h1") }
            // The other prints no lines at first.
            pause(milliseconds: 1_000)
            let id = try fleet.administer("grant", "--fleet", fleet.files.base + "/nowhere", "--view", "v", "--name", "x").trimmed
            try fleet.files.wait(until: "both tell of the grant: \(text(0)) \(text(1))") {
                text(0).contains("granted x") && text(1).contains("\"event\":\"granted\"")
            }
            try fleet.files.wait(until: "the problem is told") { text(1).contains("\"event\":\"problem\"") && text(1).contains(id) }
            let shown = try fleet.administer("repair", "--fleet", id, "--json").orThrow()
            #expect(shown.text.lowercased().contains("no such directory") && shown.text.contains("\"host\":\"h1\""), "\(shown)")
            fleet.killAgent("h1")
            try fleet.files.wait(until: "the host is gone", within: 60) { text(1).contains("\"event\":\"gone\",\"host\":\"h1\"") }
            try fleet.startAgent("h1")
            try fleet.files.wait(until: "it is there again", within: 60) { text(1).contains("\"event\":\"live\",\"host\":\"h1\"") }
        }
    }
}
