import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    /// Rules of the fleet's grants, on each host as those of its own grants.
    @Suite struct FleetRuleTests {
        private struct Document: Decodable {
            struct Rules: Decodable, Equatable {
                let hide: [String]
                let protect: [String]
                let only: [String]

                init(hide: [String] = [], protect: [String] = [], only: [String] = []) {
                    (self.hide, self.protect, self.only) = (hide, protect, only)
                }
            }
            let name: String
            let rules: Rules
            let state: String?
        }

        private func rules(_ output: Output) throws -> [Document.Rules] {
            try output.orThrow().decoded(as: [Document].self).map(\.rules)
        }

        @Test("Each host hides and protects what the fleet's rules say, and follows their changes")
        func onHosts() throws {
            let fleet = try FleetFixture()
            let mounts = try ["h1", "h2"].map { try fleet.mount($0) }
            let source = try fleet.source()
            for name in [".env", "kept", "key"] { try "x".write(toFile: source + "/" + name, atomically: false, encoding: .utf8) }
            try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "x", "--hide", ".env", "--protect", "kept").orThrow()
            for mount in mounts {
                try fleet.awaitReading(mount + "/x/file", 0)
                #expect(FleetFixture.reading(mount + "/x/.env") == ENOENT)
                #expect(FleetFixture.reading(mount + "/x/kept") == 0)
                #expect(open(mount + "/x/kept", O_WRONLY) == -1 && errno == EROFS)
            }
            let expected = Document.Rules(hide: [".env"], protect: ["kept"])
            #expect(try rules(fleet.administer("list", "--fleet", "--json")) == [expected])
            #expect(try rules(fleet.on("h1", "list", "--json")) == [expected])
            #expect(try fleet.administer("list", "x", "--fleet").orThrow().text.contains("hide"))
            #expect(try fleet.administer("list", "--fleet").orThrow().text.contains("hide 1, protect 1"))
            // A file that new rules take away is refused on each host when the command returns, even if it is open.
            let held = mounts.map { open($0 + "/x/key", O_RDONLY | O_CLOEXEC) }
            defer { for descriptor in held { close(descriptor) } }
            #expect(held.allSatisfy { FleetFixture.reading($0) == 0 })
            try fleet.administer("set", "x", "--fleet", "--hide", "key").orThrow()
            #expect(held.allSatisfy { FleetFixture.reading($0) == EACCES })
            for mount in mounts {
                #expect(FleetFixture.reading(mount + "/x/key") == ENOENT)
                #expect(FleetFixture.reading(mount + "/x/.env") == 0, "what is hidden no more")
                #expect(open(mount + "/x/kept", O_WRONLY) == -1 && errno == EROFS)
            }
            let refused = try fleet.on("h1", "set", "x", "--view", "v", "--no-rules")
            #expect(refused.status != 0, "a host does not widen what the fleet gives: \(refused)")
            try fleet.administer("revoke", "x", "--fleet").orThrow()
            try fleet.administer("restore", "x", "--fleet").orThrow()
            for mount in mounts { #expect(FleetFixture.reading(mount + "/x/key") == ENOENT, "rules stay") }
            try fleet.administer("set", "x", "--fleet", "--no-rules").orThrow()
            #expect(mounts.allSatisfy { FleetFixture.reading($0 + "/x/key") == 0 })
        }

        @Test("`fleet apply` gives the rules of a file, and `--dry-run` shows their changes")
        func applied() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let source = try fleet.source()
            let file = fleet.files.base + "/fleet.grants"
            func declare(_ rules: String) throws {
                try "[[grant]]\nview = \"v\"\npath = \"\(source)\"\n\(rules)\n".write(toFile: file, atomically: true, encoding: .utf8)
            }
            func apply(_ options: String...) throws -> String {
                try fleet.run(["fleet", "apply", file] + options, store: "administrator").orThrow().text
            }
            try declare("hide = [\"file\"]")
            #expect(try apply().contains("hide file"))
            try fleet.awaitReading(mount + "/x", EISDIR)
            #expect(FleetFixture.reading(mount + "/x/file") == ENOENT)
            #expect(try apply().contains("nothing to change"))
            try declare("protect = [\"file\"]")
            #expect(try apply("--dry-run").contains("hide file → nothing, protect nothing → file"))
            #expect(FleetFixture.reading(mount + "/x/file") == ENOENT)
            _ = try apply()
            #expect(FleetFixture.reading(mount + "/x/file") == 0)
            #expect(open(mount + "/x/file", O_WRONLY) == -1 && errno == EROFS)
            for (rules, says) in [
                ("hideHex = [\"ff\"]", "“hideHex” is not for grants of a fleet"), ("hide = [\"*\"]", "hides everything"),
                ("hide = [\(Self.many.map { "\"\($0)\"" }.joined(separator: ","))]", "too many rules for one grant of a fleet"),
            ] {
                try declare(rules)
                let output = try fleet.administer("fleet", "apply", file)
                #expect(output.status != 0 && output.errors.contains(says) && output.errors.contains("fleet.grants:"), "\(output)")
            }
            #expect(FleetFixture.reading(mount + "/x/file") == 0, "nothing was changed")
        }

        private static let many = (0..<4_000).map { "pattern\($0)" }

        @Test("Rules that a fleet cannot have are a usage error, and change nothing")
        func refused() throws {
            let fleet = try FleetFixture(hosts: [])
            let source = try fleet.source()
            try fleet.administer("grant", "--fleet", source, "--view", "v", "--hide", "a").orThrow()
            for (rules, says) in [
                (Self.many.flatMap { ["--hide", $0] }, "16 KiB are the limit"), (["--hide", "x", "--protect", "x"], "rules contradict"),
                (["--hide", "#x"], "it is a comment"),
            ] {
                for command in [["grant", "--fleet", source, "--view", "w"], ["set", "--fleet", "x"]] {
                    let output = try fleet.run(command + rules, store: "administrator")
                    #expect(output.status == 2 && output.errors.contains(says), "\(output)")
                }
            }
            let script = "p=$(printf '\\377'); exec \"$1\" set --fleet x --hide \"$p\""
            let output = try Command.run(
                ["sh", "-c", script, "sh", Programs.grantfs], environment: ["GRANTFS_STORE": fleet.store("administrator")], within: 120)
            #expect(output.status == 2 && output.errors.contains("it is not UTF-8"), "\(output)")
            let other = try fleet.administer("grant", "--fleet", source, "--view", "v", "--hide", "b")
            #expect(other.status == 1 && other.errors.contains("with rules"), "\(other)")
            #expect(try rules(fleet.administer("list", "--fleet", "--json")) == [Document.Rules(hide: ["a"])])
        }

        @Test("A host withdraws a grant whose rules it does not understand")
        func nonsense() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--hide", ".env").orThrow().trimmed
            try fleet.awaitReading(mount + "/x/file", 0)
            let root = try fleet.rootOfEtcd()
            let key = "grantfs/grants/all/\(id)"
            let good = try fleet.servers.etcdctl("get", "--print-value-only", key, user: root).orThrow().trimmed
            let text = "\"rules\":{\"hide\":[\".env\"],\"only\":[],\"protect\":[]}"
            #expect(good.contains("\"format\":3") && good.contains(text))
            func put(_ value: String) throws {
                try fleet.servers.etcdctl("put", key, value, user: root).orThrow()
                try fleet.servers.etcdctl("put", "grantfs/bell", "{}", user: root).orThrow()
            }
            let flaws =
                [
                    good.replacingOccurrences(of: "\"format\":3", with: "\"format\":1"),
                    good.replacingOccurrences(of: "\"format\":3", with: "\"format\":5"),
                ]
                + [
                    "\"rule\":{}", "\"rules\":{}", "\"rules\":[]", text.replacingOccurrences(of: ".env", with: ""),
                    text.replacingOccurrences(of: "\".env\"", with: "1"), text.replacingOccurrences(of: "\".env\"", with: ""),
                    text.replacingOccurrences(of: "\"only\":[],", with: ""), text.replacingOccurrences(of: ".env", with: "*"),
                ].map { good.replacingOccurrences(of: text, with: $0) }
            for (number, bad) in flaws.enumerated() {
                #expect(bad != good)
                try put(bad)
                try fleet.awaitReading(mount + "/x/file", EACCES)
                try fleet.files.wait(until: "the host says why") { try fleet.host("h1")?.problems[id] != nil }
                try put(good.replacingOccurrences(of: "\"activation\":1,", with: "\"activation\":\(number + 2),"))
                try fleet.awaitReading(mount + "/x/file", 0)
            }
        }
    }
}
