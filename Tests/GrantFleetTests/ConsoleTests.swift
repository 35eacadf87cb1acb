import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct TheConsole {
        @Test("The console revokes and restores on every host and shows confirmations")
        func spreads() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "20s")
            let mounts = try ["h1", "h2"].map { try fleet.mount($0) }
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let before = try console.awaitState(key, "granted on both") { $0.grant(id)?.confirmed == 2 }
            for mount in mounts { try fleet.awaitReading(mount + "/x/file", 0) }
            #expect(before.fleet?.hosts.map(\.id) == ["h1", "h2"] && before.failure == nil)
            let revision = try #require(before.grant(id)).revision
            #expect(try console.change("revoke", id, revision: revision, key: key).status == 202)
            let after = try console.awaitState(key, "over") { $0.changes.last?.over == true }
            let change = try #require(after.changes.last)
            #expect(change.kind == "revoke" && change.id == id && change.failure == nil)
            #expect(change.hosts.map(\.host) == ["h1", "h2"] && change.hosts.allSatisfy { $0.state == "confirmed" && $0.milliseconds > 0 })
            for mount in mounts { #expect(FleetFixture.reading(mount + "/x/file") == EACCES) }
            // Hosts are read before grants, so they may have confirmed more than is shown with the grant at first.
            let shown = try console.awaitState(key, "seen, and confirmed") {
                $0.grant(id)?.state == "revoked" && $0.grant(id)?.confirmed == 2
            }
            #expect(shown.grant(id)?.waiting == 0)
            let log = try fleet.administer("log", "--fleet", "--json").orThrow().text
            #expect(log.contains("grantfs fleet console, for the token"), "\(log)")
            // A grant that changed since the page read it is not restored.
            #expect(try console.change("restore", id, revision: revision, key: key).status == 202)
            let refused = try console.awaitState(key, "over") { $0.changes.count == 2 && $0.changes.last?.over == true }
            #expect(refused.changes.last?.failure?.contains("another administrator has changed it") == true, "\(refused.changes)")
            #expect(FleetFixture.reading(mounts[0] + "/x/file") == EACCES)
            #expect(try console.change("restore", id, revision: try #require(shown.grant(id)).revision, key: key).status == 202)
            for mount in mounts { try fleet.awaitReading(mount + "/x/file", 0) }
            #expect(console.said.contains("revoked “x”") && console.said.contains("for the token at 127.0.0.1"), "\(console.said)")
            if let token = console.token { #expect(!console.said.contains(token)) }
        }

        @Test("The console shows how long an unreachable host may still serve")
        func waits() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"], lease: "6s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let before = try console.awaitState(key, "granted on both") { $0.grant(id)?.confirmed == 2 }
            fleet.signalAgent("h2", SIGSTOP)
            let revision = try #require(before.grant(id)).revision
            #expect(try console.change("revoke", id, revision: revision, key: key).status == 202)
            _ = try console.awaitState(key, "confirmed by one") { $0.grant(id)?.confirmed == 1 && $0.grant(id)?.waiting == 1 }
            var standings: ConsoleStandings = try console.ask("/api/grant?id=\(id)", console.keyed(key)).decoded()
            #expect(standings.row("h1")?.standing == "confirmed")
            let waiting = try #require(standings.row("h2"))
            let left = Double(waiting.until ?? 0) / 1000 - Date().timeIntervalSince1970
            #expect(waiting.standing == "waiting" && waiting.behind > 0 && left > 0 && left < 9, "\(waiting), \(left) s left")
            let after = try console.awaitState(key, "over") { $0.changes.last?.over == true }
            #expect(after.changes.last?.hosts.first { $0.host == "h2" }?.state == "fenced", "\(after.changes)")
            // The change gets the result before the next refresh does.
            _ = try console.awaitState(key, "gone") { $0.grant(id)?.gone == 1 }
            standings = try console.ask("/api/grant?id=\(id)", console.keyed(key)).decoded()
            #expect(standings.row("h2")?.standing == "gone")
            fleet.signalAgent("h2", SIGCONT)
        }

        @Test("The console reports a silent etcd and goes on when it answers again")
        func etcdStops() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            _ = try console.awaitState(key, "seen") { $0.grant(id) != nil }
            let member = fleet.servers.members[0]
            fleet.servers.kill(member)
            let silent = try console.awaitState(key, "said") { $0.failure != nil }
            #expect(silent.failure?.contains("no endpoint of etcd answers") == true && silent.grant(id) != nil)
            #expect(try console.change("revoke", id, revision: 1, key: key).status == 202)
            let failed = try console.awaitState(key, "over") { $0.changes.last?.over == true }
            #expect(failed.changes.last?.failure?.contains("no endpoint of etcd answers") == true)
            try fleet.servers.start(member)
            try fleet.servers.awaitAnswer(of: member)
            _ = try console.awaitState(key, "heard") { $0.failure == nil && $0.grant(id)?.state == "active" }
        }

        @Test("The console sends foreign names as text with control characters escaped")
        func names() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s")
            let bad = "<script>alert(1)<\u{2044}script>\"'&\u{202E}x"
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", bad).orThrow()
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let state = try console.awaitState(key, "seen") { $0.fleet?.grants.isEmpty == false }
            #expect(state.fleet?.grants[0].name == bad.replacingOccurrences(of: "\u{202E}", with: "\\u{202e}"))
            let answer = try console.ask("/api/state", console.keyed(key))
            #expect(answer.headers["content-type"] == ["application/json"] && answer.headers["x-content-type-options"] == ["nosniff"])
            // A host may report anything about itself: numbers out of range, and more text than a
            // page shows.
            let root = try fleet.rootOfEtcd()
            fleet.signalAgent("h1", SIGSTOP)
            let id = try #require(state.fleet?.grants[0].id)
            let forged =
                "{\"revision\":-9223372036854775808,\"version\":\"<b>\\u202e\",\"clock\":9223372036854775807,\"problems\":{\"\(id)\":\"\(String(repeating: "<i>", count: 20_000))\",\"x\":\"y\"}}"
            try fleet.servers.etcdctl("put", "--ignore-lease", "grantfs/hosts/h1/state", user: root, input: forged).orThrow()
            let told = try console.awaitState(key, "lagging") { $0.fleet?.hosts[0].lags == true }
            #expect(told.fleet?.hosts[0].problems == 1)
            let standings = try console.ask("/api/grant?id=\(id)", console.keyed(key)).decoded(ConsoleStandings.self)
            #expect(standings.row("h1")?.problem?.count == 300 && (standings.row("h1")?.behind ?? 0) > 0)
            fleet.signalAgent("h1", SIGCONT)
        }
    }
}
