import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// What an administrator types when everything, or the kind of access, is meant, and what the log then says.
    @Suite struct AdministrationTests {
        private let fixture: MountFixture

        init() throws { fixture = try MountFixture() }

        private func granted(_ names: [String], view: String) throws {
            for name in names { try fixture.grant(try fixture.source(name), view: view) }
        }

        @Test("`revoke --view V --all` withdraws every grant of the view and no other")
        func allOfView() throws {
            try granted(["a", "b"], view: "v")
            try granted(["c"], view: "w")
            try fixture.grantfs("revoke", "--view", "v", "--all").orThrow()
            #expect(try fixture.list().map(\.name) == ["c"])
            try fixture.grantfs("revoke", "--all").orThrow()
            #expect(try fixture.list().isEmpty)
            #expect(try fixture.grantfs("revoke", "--all", "a").status == 2)
        }

        @Test("A selector without a match changes no grants and reports it")
        func nothing() throws {
            try granted(["a"], view: "v")
            for command in [("revoke", "nothing was revoked"), ("remove", "nothing was removed"), ("restore", "nothing was restored")] {
                let output = try fixture.grantfs(command.0, "a", "nosuch")
                #expect(output.status == 1 && output.errors.contains(command.1), "\(output)")
            }
            #expect(try fixture.list().map(\.name) == ["a"])
        }

        @Test(
            "Each spelling of read-only makes a read-only grant",
            arguments: [["--read-only"], ["--ro"], ["-r"], ["--access", "read-only"], ["--access=ro"], [":ro"]])
        func spellings(words: [String]) throws {
            let source = try fixture.source("a")
            let mark = words == [":ro"]
            try fixture.grantfs(["grant", source + (mark ? ":ro" : "")] + (mark ? [] : words)).orThrow()
            #expect(try fixture.list().map(\.access) == ["read-only"])
            if mark { return }
            try fixture.grantfs("set", "a", "--access", "rw").orThrow()
            try fixture.grantfs(["set", "a"] + words).orThrow()
            #expect(try fixture.list().map(\.access) == ["read-only"])
        }

        @Test("A directory whose name ends with a mark is refused if it is ambiguous")
        func markedNames() throws {
            let marked = try fixture.source("a:ro")
            try fixture.grantfs("grant", marked).orThrow()
            #expect(try fixture.list().map { "\($0.name) \($0.access)" } == ["a:ro read-write"])
            _ = try fixture.source("a")
            let output = try fixture.grantfs("grant", marked, "--view", "w")
            #expect(output.status == 1 && output.errors.contains("could be two directories"), "\(output)")
            #expect(try fixture.grantfs("grant", marked + "/", "--ro", "--access", "rw").status == 2)
        }

        @Test("`set` prints each change as old → new, and logs the same")
        func oldAndNew() throws {
            try granted(["a"], view: "v")
            let output = try fixture.grantfs("set", "a", "--access", "read-only", "--name", "b").orThrow()
            for text in ["access read-write → read-only", "name a → b"] {
                #expect(output.text.contains(text), "\(output)")
                #expect(try fixture.grantfs("log").orThrow().text.contains(text))
            }
        }

        @Test("`list NAME` shows one grant in any state, with its history and mounts")
        func listOne() throws {
            try granted(["a", "b"], view: "v")
            try granted(["b"], view: "w")
            let mountpoint = try fixture.mount("v")
            let text = try fixture.grantfs("list", "a").orThrow().text
            for part in ["name      a\n", "view      v\n", "/source/a\n", "active since ", "by ", "mount     \(mountpoint), pid "] {
                #expect(text.contains(part), "“\(part)”: \(text)")
            }
            let all: [GrantDocument] = try fixture.grantfs("list", "--json").orThrow().decoded()
            let id = try #require(all.first { $0.name == "a" }).id
            for words in [["a"], [id], [String(id.prefix(8))], ["a", "--view", "v"], ["a", "--all"]] {
                let shown: [GrantDocument] = try fixture.grantfs(["list", "--json"] + words).orThrow().decoded()
                #expect(shown.map(\.id) == [id], "\(words)")
            }
            let keys = { (text: String) throws in
                try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]]).map { $0.keys.sorted() }
            }
            #expect(
                try keys(fixture.grantfs("list", "a", "--json").orThrow().text)[0]
                    == keys(fixture.grantfs("list", "--json").orThrow().text)[0])
            #expect(try fixture.grantfs("list", "b").errors.contains("--view"))
            try fixture.grantfs("revoke", "a").orThrow()
            let revoked = try fixture.grantfs("list", "a").orThrow().text
            #expect(revoked.contains("revoked since ") && !revoked.contains("mount  "), "\(revoked)")
        }

        @Test(
            "A run is one entry of the log, with its command", .enabled(if: Machine.offers("bwrap"), "\(Machine.needs("bwrap"))"))
        func run() throws {
            let source = try fixture.source("a")
            try fixture.grantfs("run", "--grant", source, "--", "true", "some word").orThrow()
            let lines = try fixture.grantfs("log").orThrow().text.split(separator: "\n")
            #expect(lines.count == 1 && lines[0].contains("ran true some word in view run-"), "\(lines)")
            #expect(try fixture.grantfs("log", "--json").orThrow().text.contains("\"granted\""))
        }

        @Test("`log -n` shows the last entries of a view, `--follow` only new ones")
        func log() throws {
            try granted(["a", "b"], view: "v")
            try granted(["c"], view: "w")
            let lines = { (words: [String]) throws in
                try fixture.grantfs(["log"] + words).orThrow().text.split(separator: "\n").map(String.init)
            }
            let last = try lines(["-n", "1", "--view", "v"])
            #expect(last.count == 1 && last[0].contains("granted b"), "\(last)")
            #expect(try lines(["-n", "0"]).isEmpty)
            let follower = try Child([Programs.grantfs, "log", "--follow", "-n", "1"], environment: fixture.environment)
            defer { follower.kill() }
            #expect(follower.line(within: 60)?.contains("granted c") == true)
            try granted(["d"], view: "v")
            #expect(follower.line(within: 60)?.contains("granted d") == true)
        }
    }
}
