import Foundation
import Glibc
import GrantFleet
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct WhatAHostWrites {
        /// Writes one value to many keys: etcd's gateway takes them from curl.
        private static func write(_ value: String, to keys: [String], _ fleet: FleetFixture, _ credentials: String) throws {
            struct File: Decodable {
                let user: String
                let password: String
            }
            let file = try JSONDecoder().decode(File.self, from: try Data(contentsOf: URL(fileURLWithPath: credentials)))
            let body = fleet.files.base + "/value"
            try Data(value.utf8).base64EncodedString().write(toFile: body, atomically: false, encoding: .utf8)
            let script =
                """
                endpoint=$1 user=$2 password=$3 value=$4
                shift 4
                token=$(curl --silent --fail "$endpoint/v3/auth/authenticate" --data "{\\"name\\":\\"$user\\",\\"password\\":\\"$password\\"}" | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
                for key; do
                    { printf '{"key":"%s","value":"' "$(printf %s "$key" | base64 -w0)"; cat "$value"; printf '"}'; } |
                        curl --silent --fail --output /dev/null --header "Authorization: $token" --data-binary @- "$endpoint/v3/kv/put"
                done
                """
            try Command.run(
                ["bash", "-euc", script, "bash", fleet.servers.endpoints[0], file.user, file.password, body] + keys, within: 120
            ).orThrow()
        }

        private static func credentials(_ fleet: FleetFixture, _ host: String) -> String { fleet.store(host) + "/fleet/host.json" }

        @Test("Large extra keys of a hostile host delay no command and fill no memory")
        func besides() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            try Self.write(Self.large, to: (0..<40).map { "grantfs/hosts/h1/more\($0)" }, fleet, Self.credentials(fleet, "h1"))
            for words in [["fleet", "hosts"], ["top", "--fleet"], ["fleet", "status"], ["revoke", "--fleet", "x"]] {
                let start = Machine.milliseconds
                let output = try Command.run(
                    [Programs.grantfs] + words, environment: ["GRANTFS_STORE": fleet.store("administrator")], within: 60)
                #expect(output.status == 0 && Machine.milliseconds - start < 20_000 * Machine.slowness, "\(words): \(output.errors)")
            }
            _ = try console.awaitState(key, "seen", within: 20) { $0.failure == nil && $0.fleet?.grants.first?.confirmed == 1 }
            let status = try String(contentsOfFile: "/proc/\(console.child.pid)/status", encoding: .utf8)
            let peak = Int(status.firstMatch(of: /VmHWM:\s*([0-9]+) kB/)?.1 ?? "") ?? .max
            #expect(peak < 128 << 10, "\(peak) KiB")
        }

        @Test("`fleet hosts` shortens long reports of hosts")
        func longWords() throws {
            let fleet = try FleetFixture(hosts: [], lease: "60s")
            let root = fleet.store("administrator") + "/fleet/administrator.json"
            try Self.write("{\"version\":\"\(Self.large)\"}", to: (0..<40).map { "grantfs/hosts/g\($0)/state" }, fleet, root)
            let output = try fleet.administer("fleet", "hosts").orThrow()
            #expect(output.text.split(separator: "\n").count == 41 && output.text.utf8.count < 20_000, "\(output.text.prefix(500))")
        }

        private static let large = String(repeating: "x", count: 1_400_000)

        @Test("A report of a hostile host is cut by Unicode scalars")
        func marks() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            _ = try console.awaitState(key, "granted") { $0.fleet?.grants.first?.confirmed == 1 }
            fleet.signalAgent("h1", SIGSTOP)
            defer { fleet.signalAgent("h1", SIGCONT) }
            let (marks, some) = (String(repeating: "\u{301}", count: 330_000), String(repeating: "\u{301}", count: 30_000))
            let word = "{\"revision\":9999,\"version\":\"v\(marks)\",\"problems\":{\"\(id)\":\"v\(some)\",\"v\(some)\":\"y\"}}"
            let user = try #require(FleetFixture.user(in: Self.credentials(fleet, "h1")))
            try fleet.servers.etcdctl("put", "--ignore-lease", "grantfs/hosts/h1/state", user: user, input: word).orThrow()
            let state = try console.awaitState(key, "said") {
                $0.fleet?.hosts[0].version.isEmpty == false && $0.fleet?.hosts[0].problems == 1
            }
            #expect(state.fleet?.hosts[0].version.unicodeScalars.count == 40)
            let standings = try console.ask("/api/grant?id=\(id)", console.keyed(key)).decoded(ConsoleStandings.self)
            #expect(standings.row("h1")?.problem?.unicodeScalars.count == 300)
            for words in [["fleet", "hosts"], ["top", "--fleet"], ["fleet", "hosts", "--json"]] {
                let output = try Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": fleet.store("administrator")])
                #expect(output.status == 0 && output.text.utf8.count + output.errors.utf8.count < 20_000, "\(words)")
            }
        }

        @Test("Invisible characters in names of hosts and grants are shown as escapes")
        func names() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let source = try fleet.source()
            // Each looks like “pay” or “p y”.
            let names = [
                "pay", "pa\u{200B}y", "pa\u{2060}y", "\u{202E}yap", "pay\u{E0041}", "pay\u{3164}", "pay\u{FE0F}", "pa\u{34F}y", "p y",
                "p\u{A0}y",
                "p\u{2003}y", "p  y", " pay", "pay ", "p\u{2800}y", "pa\\u{200b}y",
            ]
            let shown = [
                "pay", "pa\\u{200b}y", "pa\\u{2060}y", "\\u{202e}yap", "pay\\u{e0041}", "pay\\u{3164}", "pay\\u{fe0f}", "pa\\u{34f}y",
                "p y",
                "p\\u{a0}y", "p\\u{2003}y", "p \\x20y", "\\x20pay", "pay\\x20", "p\\u{2800}y", "pa\\\\u{200b}y",
            ]
            for name in names { try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", name).orThrow() }
            let console = try ConsoleFixture(fleet)
            let key = try console.logIn()
            let state = try console.awaitState(key, "granted") { $0.fleet?.grants.count == names.count && $0.fleet?.hosts[0].lags == false }
            #expect(Set(state.fleet?.grants.map(\.name) ?? []) == Set(shown))
            let top = try fleet.administer("top", "--fleet").orThrow().text
            for name in shown { #expect(top.contains(name), "\(name): \(top)") }
            fleet.signalAgent("h1", SIGSTOP)
            defer { fleet.signalAgent("h1", SIGCONT) }
            let user = try #require(FleetFixture.user(in: Self.credentials(fleet, "h1")))
            let word = "{\"revision\":9999,\"version\":\"1\u{200B}\u{202E}.0\u{1B}[31m\u{A0}\"}".replacingOccurrences(
                of: "\u{1B}", with: "\\u001b")
            try fleet.servers.etcdctl("put", "--ignore-lease", "grantfs/hosts/h1/state", user: user, input: word).orThrow()
            let version = "1\\u{200b}\\u{202e}.0\\x1b[31m\\u{a0}"
            let told = try console.awaitState(key, "said") { $0.fleet?.hosts[0].version.hasPrefix("1\\") == true }
            #expect(told.fleet?.hosts[0].version == version)
            #expect(try fleet.administer("fleet", "hosts").orThrow().text.contains(version))
        }

        @Test("A host that leaves the fleet is gone, and no other host is silenced")
        func leaving() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2", "h3"], lease: "6s")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            let administrator = try EtcdClient(
                try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings)
            let keys = { (host: String) throws in try administrator.list("grantfs/hosts/\(host)/").entries.map(\.key) }
            for host in ["h1", "h2", "h3"] {
                let client = try EtcdClient(try FleetCredentials(file: Self.credentials(fleet, host)).settings)
                _ = try client.transaction(then: [.put("grantfs/hosts/\(host)/more", [1]), .put("grantfs/hosts/\(host)/z", [1])])
                fleet.killAgent(host == "h3" ? "" : host)
                // A word under no lease would never end, and revocations would wait for it.
                if host == "h2" {
                    _ = try client.transaction(then: [.put("grantfs/hosts/h2/agent", [1]), .put("grantfs/hosts/h2/state", [1])])
                }
            }
            try fleet.on("h1", "fleet", "leave").orThrow()
            #expect(try keys("h1").isEmpty)
            try fleet.administer("fleet", "leave", "h2").orThrow()
            #expect(try keys("h2") == ["grantfs/hosts/h2/agent", "grantfs/hosts/h2/alive"])
            // Another machine with the invitation of one that serves.
            try fleet.on("copy", "fleet", "join", fleet.files.base + "/h3.invitation").orThrow()
            try fleet.on("copy", "fleet", "leave").orThrow()
            #expect(try keys("h3").contains("grantfs/hosts/h3/agent") && keys("h3").contains("grantfs/hosts/h3/state"))
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "40", "--json").orThrow().decoded(
                as: [FleetRevocation].self)
            #expect(revoked[0].state("h2") == "fenced" && revoked[0].state("h3") == "confirmed", "\(revoked)")
            #expect(try keys("h2").isEmpty)
        }
    }
}

extension FleetFixture {
    /// `USER:PASSWORD`, for etcd's own client.
    static func user(in credentials: String) -> String? {
        struct File: Decodable {
            let user: String
            let password: String
        }
        guard let data = try? Data(contentsOf: URL(fileURLWithPath: credentials)),
            let file = try? JSONDecoder().decode(File.self, from: data)
        else { return nil }
        return "\(file.user):\(file.password)"
    }
}
