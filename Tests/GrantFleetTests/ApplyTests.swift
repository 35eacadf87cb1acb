import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct ADeclaredFleet {
        private struct Document: Decodable {
            struct Grant: Decodable {
                let action: String
                let name: String
            }
            let dryRun: Bool
            let changed: Int
            let grants: [Grant]
            var actions: [String] { grants.map { "\($0.action) \($0.name)" } }
        }

        @Test("`fleet apply` makes the fleet match a file and keeps revocations")
        func applies() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let mounts = try ["h1", "h2"].map { try fleet.mount($0) }
            let sources = try ["a", "b", "c", "d"].map { try fleet.source($0) }
            let file = fleet.files.base + "/fleet.grants"
            let declare = { (text: String) in try text.write(toFile: file, atomically: true, encoding: .utf8) }
            try fleet.administer("grant", "--fleet", sources[3], "--view", "other").orThrow()
            try declare(
                """
                [[grant]]
                view = "v"
                path = "\(sources[0])"
                [[grant]]
                view = "v"
                path = "\(sources[1])"
                access = "read-only"
                hosts = "host=h2"
                """)
            let preview = try fleet.administer("fleet", "apply", file, "--dry-run").orThrow()
            #expect(preview.text.contains("+ a  \(sources[0]) for all, read-write, on h1, h2"), "\(preview)")
            #expect(preview.text.contains("+ b  \(sources[1]) for host=h2, read-only, on h2"), "\(preview)")
            #expect(FleetFixture.reading(mounts[0] + "/a/file") == ENOENT)
            let made = try fleet.administer("fleet", "apply", file, "--json").orThrow().decoded(as: Document.self)
            #expect(made.actions == ["create a", "create b"] && !made.dryRun && made.changed == 2)
            for path in [mounts[0] + "/a/file", mounts[1] + "/a/file", mounts[1] + "/b/file"] { try fleet.awaitReading(path, 0) }
            #expect(FleetFixture.reading(mounts[0] + "/b/file") == ENOENT)
            #expect(try fleet.administer("fleet", "apply", file, "--json").orThrow().decoded(as: Document.self).changed == 0)

            // b is for all, c is new, a is no longer there.
            try declare(
                """
                [[grant]]
                view = "v"
                path = "\(sources[1])"
                [[grant]]
                view = "v"
                path = "\(sources[2])"
                """)
            let changed = try fleet.administer("fleet", "apply", file, "--json", "--timeout", "30").orThrow()
            #expect(try changed.decoded(as: Document.self).actions == ["withdraw a", "replace b", "create c"])
            for mount in mounts {
                #expect([EACCES, ENOENT].contains(FleetFixture.reading(mount + "/a/file")))
                for name in ["b", "c"] { try fleet.awaitReading("\(mount)/\(name)/file", 0) }
            }
            #expect(
                try fleet.administer("list", "--fleet", "--view", "other", "--json").orThrow().text.contains("\"active\""),
                "views that it does not name")

            try fleet.administer("revoke", "--fleet", "c").orThrow()
            let left = try fleet.administer("fleet", "apply", file).orThrow()
            #expect(left.text.contains("? c  it is revoked, and stays so") && left.text.contains("nothing to change"), "\(left)")
            #expect(FleetFixture.reading(mounts[0] + "/c/file") == EACCES)
            try declare(
                "[[grant]]\nview = \"v\"\npath = \"\(sources[2])\"\naccess = \"read-only\"\n[[grant]]\nview = \"v\"\npath = \"\(sources[1])\"\n"
            )
            let restored = try fleet.administer("fleet", "apply", file, "--restore").orThrow()
            #expect(restored.text.contains("~ c  access read-write → read-only, active again"), "\(restored)")
            try fleet.awaitReading(mounts[0] + "/c/file", 0)
            #expect(open(mounts[0] + "/c/new", O_WRONLY | O_CREAT, 0o600) < 0 && errno == EROFS)
        }

        @Test("`fleet apply` rejects a file with a flaw and changes nothing")
        func flaws() throws {
            let fleet = try FleetFixture(hosts: [])
            let source = try fleet.source()
            try fleet.administer("grant", "--fleet", source, "--view", "v").orThrow()
            let file = fleet.files.base + "/fleet.grants"
            let cases = [
                ("[[grant]]\npath = \"/a/../b\"", "fleet.grants:1: the path is not for a fleet"),
                ("[[grant]]\npath = \"~/a\"", "is not absolute"), ("[[grant]]\npath = \"/a\"\nhosts = \"role\"", "invalid term"),
                ("[[grant]]\npath = \"/a\"\nasDirectory = true", "is not for grants of a fleet"),
                ("[[grant]]\npath = \"/a\"\n[[grant]]\npath = \"/b/a\"", "is in the view “default” already"),
                ("[[grant]]\npath = \"/a\"\nhost = \"x\"", "hosts"),
            ]
            for (text, said) in cases {
                try text.write(toFile: file, atomically: true, encoding: .utf8)
                let output = try fleet.administer("fleet", "apply", file)
                #expect(output.status == 1 && output.errors.contains(said), "\(said): \(output)")
            }
            #expect(try fleet.administer("list", "--fleet", "--json").orThrow().text.contains("\"active\""))
            try "[[grant]]\npath = \"\(source)\"\nhosts = \"all\"\n".write(toFile: file, atomically: true, encoding: .utf8)
            let local = try fleet.on("h1", "apply", file)
            #expect(local.status == 1 && local.errors.contains("is for grants of a fleet"), "\(local)")
        }
    }
}
