import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct GrantAgainTests {
        @Test("An identical grant is kept, reported and not logged again")
        func same() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let id = try fixture.grant(source, name: "x", "--read-only", "--expires", "2099-01-01T00:00:00Z")
            let log = try fixture.grantfs("log").orThrow().lines.count
            let again = try fixture.grantfs("grant", source, "--name=x", "--ro", "--expires", "2099-01-01T00:00:00Z").orThrow()
            #expect(again.trimmed == id && again.errors.contains("already, in the same way"), "\(again)")
            let document: GrantDocument = try fixture.grantfs(
                "grant", source + "/../a", "--name", "x", "-r", "--expires", "2099-01-01T00:00:00Z", "--json"
            ).orThrow().decoded()
            #expect(document.id == id)
            #expect(try fixture.list().count == 1)
            #expect(try fixture.grantfs("log").orThrow().lines.count == log)
        }

        @Test("A grant of a granted directory with other settings is refused with advice")
        func different() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let wrong: [([String], String)] = [
                ([source, "--read-only"], "grantfs set a --access read-only"), ([source, "--expires", "2h"], "grantfs set a --expires"),
                ([try fixture.source("b"), "--name", "a"], source), ([source, "--tag"], "--tag"),
            ]
            for (words, says) in wrong {
                let output = try fixture.grantfs(["grant"] + words)
                #expect(output.status == 1 && output.errors.contains(says), "\(output)")
            }
            try fixture.grantfs("revoke", "a").orThrow()
            let revoked = try fixture.grantfs("grant", source)
            #expect(revoked.status == 1 && revoked.errors.contains("grantfs restore"), "\(revoked)")
            #expect(try fixture.list("--all").map(\.state) == ["revoked"])
        }
    }

    @Suite struct SeveralDirectories {
        @Test("One command grants several directories in their order")
        func several() throws {
            let fixture = try MountFixture()
            let mountpoint = try fixture.mount(isNew: true)
            let sources = try ["c", "a", "b"].map { try fixture.source($0) }
            let first = try fixture.grant(sources[1])
            let output = try fixture.grantfs(["grant"] + sources + [sources[0]]).orThrow()
            #expect(output.lines.count == 3 && output.lines[1] == first, "\(output)")
            #expect(try Command.run(["ls", mountpoint]).orThrow().lines == ["a", "b", "c"])
            let documents: [GrantDocument] = try fixture.grantfs(["grant"] + sources + ["--json"]).orThrow().decoded()
            #expect(documents.map(\.id) == output.lines)
        }

        @Test("Several directories are granted all or not at all")
        func allOrNone() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("taken"), "--read-only")
            let sources = try ["a", "taken", "b"].map { try fixture.source($0) }
            #expect(try fixture.grantfs(["grant"] + sources).status == 1)
            #expect(try fixture.grantfs("grant", sources[0], fixture.base + "/nowhere").status == 1)
            #expect(try fixture.list().map(\.name) == ["taken"])
        }
    }
}
