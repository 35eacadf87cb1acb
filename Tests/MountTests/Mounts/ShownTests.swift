import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What `list`, `status`, `log` and `repair` show to people, and to programs.
    @Suite struct ShownTests {
        private struct Status: Decodable {
            struct Mount: Decodable {
                struct Grant: Decodable {
                    let name: String
                    let expires: String?
                }
                let grants: [Grant]
            }
            let mounts: [Mount]
        }

        /// Five and a half hours east of Greenwich: a fraction of an hour, and not the zone of a
        /// test machine.
        private static let zone = ["TZ": "XXX-5:30"]

        private func grantfs(_ fixture: MountFixture, _ words: String...) throws -> Output {
            try Command.run([Programs.grantfs] + words, environment: fixture.environment.merging(Self.zone) { $1 }).orThrow()
        }

        @Test("An expiry is printed in local time, and in UTC in JSON")
        func expiries() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"), "--expires", "2099-01-31T12:00:00Z")
            try fixture.grant(try fixture.source("b"))
            let mountpoint = try fixture.mount()
            for words in [["list"], ["status"], ["list", "a"], ["repair", "a"]] {
                let text = try Command.run([Programs.grantfs] + words, environment: fixture.environment.merging(Self.zone) { $1 }).orThrow()
                    .text
                #expect(text.contains("2099-01-31 17:30:00"), "\(text)")
            }
            for command in ["list", "status"] {
                let lines = try grantfs(fixture, command).lines
                #expect(
                    lines.contains { $0.contains("EXPIRES") } && lines.contains { $0.contains("b ") && $0.contains("never") }, "\(lines)")
            }
            #expect(try fixture.list().map(\.expires) == ["2099-01-31T12:00:00Z", nil])
            let status: Status = try fixture.grantfs("status", "--json").orThrow().decoded()
            #expect(status.mounts[0].grants.map(\.expires) == ["2099-01-31T12:00:00Z", nil])
            #expect(try grantfs(fixture, "list", "--json").text == grantfs(fixture, "list", "--json").text)
            _ = mountpoint
        }

        @Test("A log entry has local time with its offset, and UTC in JSON")
        func log() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let line = try #require(try grantfs(fixture, "log").lines.first)
            let time = String(line.prefix { $0 != " " })
            #expect(time.hasSuffix("+05:30") && time.contains("T"), "\(line)")
            struct Entry: Decodable { let time: String }
            let entries: [Entry] = try fixture.grantfs("log", "--json").orThrow().decoded()
            let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
            let said = try format.parse(
                entries[0].time.contains(".") ? entries[0].time : entries[0].time.replacingOccurrences(of: "Z", with: ".000Z"))
            let local = try format.parse(time)
            #expect(abs(said.timeIntervalSince(local)) < 0.0015)
            #expect(try fixture.grantfs("log", "--since", time).orThrow().lines.count == 1)
        }

        @Test("`list` reports how many grants it does not show")
        func counts() throws {
            let fixture = try MountFixture()
            #expect(try fixture.grantfs("list").orThrow().errors.contains("nothing is granted"))
            for name in ["a", "b", "c"] { try fixture.grant(try fixture.source(name)) }
            #expect(try fixture.grantfs("list").orThrow().errors.isEmpty)
            try fixture.grantfs("revoke", "a", "b").orThrow()
            let some = try fixture.grantfs("list").orThrow()
            #expect(some.lines.count == 2 && some.errors == "grantfs: not shown: 2 revoked (--all shows them)\n", "\(some)")
            try fixture.grantfs("set", "c", "--expires", "1s").orThrow()
            try fixture.wait(until: "c expires") { try fixture.list().isEmpty }
            let none = try fixture.grantfs("list").orThrow()
            #expect(
                none.text.isEmpty && none.errors == "grantfs: nothing is granted now; not shown: 2 revoked, 1 expired (--all shows them)\n")
            let all = try fixture.grantfs("list", "--all").orThrow()
            #expect(all.lines.count == 4 && all.errors.isEmpty, "\(all)")
            #expect(try fixture.grantfs("list", "--json").orThrow().errors.isEmpty)
            try fixture.grantfs("remove", "a", "b", "c").orThrow()
            #expect(try fixture.grantfs("list", "--view", "default").orThrow().errors.contains("nothing is granted to the view “default”"))
        }

        @Test("`status` reports an absence of mounts and does not list itself as a holder")
        func status() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data().write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let none = try fixture.grantfs("status").orThrow()
            #expect(none.text.isEmpty && none.errors.contains("no view is mounted"), "\(none)")
            let mountpoint = try fixture.mount()
            let output = try Command.run(
                ["sh", "-c", "exec 9<\"$2\"; \"$1\" status; \"$1\" status --json", "sh", Programs.grantfs, mountpoint + "/a/file"],
                environment: fixture.environment
            ).orThrow()
            #expect(
                output.lines.filter { $0.contains("held by") }.count == 1 && !output.text.contains("\"command\":\"grantfs\""), "\(output)")
        }

        @Test("A terminal shows revoked and unavailable grants in colour", .enabled(if: Command.exists("script"), "needs script(1)"))
        func colour() throws {
            let fixture = try MountFixture()
            for name in ["a", "b"] { try fixture.grant(try fixture.source(name)) }
            try fixture.grantfs("revoke", "a").orThrow()
            let list = { (variables: [String]) in
                try Command.run(
                    ["env", "-u", "NO_COLOR", "TERM=xterm"] + variables + [
                        "script", "-qec", "\(Programs.grantfs) list --all", "/dev/null",
                    ],
                    environment: fixture.environment, input: "", within: 60
                ).orThrow().text.replacingOccurrences(of: "\r\n", with: "\n").components(separatedBy: "\n")
            }
            let lines = try list([])
            #expect(lines.contains { $0.hasPrefix("\u{1B}[31ma ") } && lines.contains { $0.hasPrefix("b ") }, "\(lines)")
            #expect(try list(["NO_COLOR=1"]).allSatisfy { !$0.contains("\u{1B}") })
        }
    }
}
