import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Each a clear error with the promised exit status, and nothing changed.
    @Suite struct BadInput {
        struct Wrong: Sendable, CustomTestStringConvertible {
            let arguments: [String]
            let status: Int32
            /// Something the message must say.
            var says = ""
            var testDescription: String { arguments.map { $0.count > 40 ? "…" : $0 }.joined(separator: " ").debugDescription }
            init(_ status: Int32, _ arguments: String..., says: String = "") {
                (self.arguments, self.status, self.says) = (arguments, status, says)
            }
        }

        /// `{}` is the fixture's directory. “a” is granted in two views, “b” in one that is mounted
        /// at {}/mount.
        static let table: [Wrong] = [
            Wrong(1, "grant", "{}/nowhere", says: "nowhere"),
            Wrong(1, "grant", "{}/file/below", says: "not a directory"),
            Wrong(2, "grant", "{}/free", "--as-directory", says: "for files"),
            Wrong(2, "grant", "{}/free", "--name", "x/y"),
            Wrong(2, "grant", "{}/free", "--name", ""),
            Wrong(2, "grant", "{}/free", "--name", "."),
            Wrong(2, "grant", "{}/free", "--name", ".."),
            Wrong(2, "grant", "{}/free", "--name", String(repeating: "n", count: 256)),
            Wrong(2, "grant", "{}/free", "--name", "new\nline"),
            Wrong(2, "grant", "{}/free", "--view", "x/y"),
            Wrong(1, "grant", "{}/free", "--name", "b", says: "b"),
            Wrong(1, "grant", "{}/source/b", "--read-only", says: "read-write"),
            Wrong(1, "grant", "{}/source/b", "--expires", "2h", says: "never expires"),
            Wrong(2, "grant", "{}/free", "{}/source/free", says: "free"),
            Wrong(2, "grant", "{}/free", "{}/full", "--name", "n", says: "one"),
            Wrong(1, "grant", "{}/full", "{}/nowhere", says: "nowhere"),
            Wrong(1, "grant", "~/nowhere", says: "$home"),
            Wrong(2, "list", "--store", "~/store", says: "~"),
            Wrong(2, "grant", "{}/free", "--expires", "2001-01-01T00:00:00Z"),
            Wrong(2, "grant", "{}/free", "--expires", "soon", says: "soon"),
            Wrong(2, "grant", "{}/free", "--expires", "-5s"),
            Wrong(2, "grant", "{}/free", "--expires", "99999999999999999999d"),
            Wrong(2, "grant"),
            Wrong(2, "grant", "{}/free", "--nonsense", says: "nonsense"),
            Wrong(1, "grant", "{}", says: "store"),
            Wrong(1, "grant", "/"),
            Wrong(1, "grant", "{}/store"),
            Wrong(1, "grant", "{}/mount"),
            Wrong(1, "grant", "{}/mount/b"),
            Wrong(1, "revoke", "unknown", says: "unknown"),
            Wrong(1, "restore", "unknown"),
            Wrong(1, "remove", "unknown"),
            Wrong(1, "repair", "unknown"),
            Wrong(2, "repair", ""),
            Wrong(2, "repair", "b", "--all"),
            Wrong(2, "repair", "b", "--prune"),
            Wrong(2, "repair", "--recorded"),
            Wrong(2, "repair", "--all", "--recorded", "--prune"),
            Wrong(2, "repair", "--confirm", "{}/source/b", says: "repair selector --confirm path"),
            Wrong(2, "repair", "{}/source/b", "--confirm", "b", says: "repair selector --confirm path"),
            Wrong(2, "repair", "b", "--confirm", "", says: "path"),
            Wrong(2, "repair", "b", "--confirm", says: "--confirm needs a value"),
            Wrong(1, "repair", "unknown", "--confirm", "{}/source/b", says: "unknown"),
            Wrong(1, "repair", "a", "--confirm", "{}/source/a", says: "--view"),
            Wrong(1, "repair", "b", "--confirm", "{}/source/b", says: "nothing to confirm"),
            Wrong(1, "repair", "b", "--confirm", "{}/nowhere", says: "nothing to confirm"),
            Wrong(2, "list", "", says: "selects no grant"),
            Wrong(1, "list", "unknown", says: "unknown"),
            Wrong(1, "list", "unknown", "--json", says: "unknown"),
            Wrong(1, "list", "a", says: "--view"),
            Wrong(2, "list", "b", "--all-users"),
            Wrong(2, "list", "b", "--system"),
            Wrong(2, "list", "b", "c", says: "one word too many"),
            Wrong(2, "resolve", "b", says: "use grantfs repair selector"),
            Wrong(2, "confirm", "b", says: "use grantfs repair selector --confirm path"),
            Wrong(2, "watch", "--json", says: "use grantfs log --follow"),
            Wrong(2, "log", "--follow", "-n", "some", says: "some"),
            Wrong(2, "policy", says: "subcommand"),
            Wrong(2, "policy", "check", "--user", "root", says: "it is an option of policy explain"),
            Wrong(2, "policy", "explain", says: "path is missing"),
            Wrong(2, "policy", "", says: "unknown subcommand"),
            Wrong(2, "fleet", "revoke", "b", says: "use grantfs revoke --fleet"),
            Wrong(1, "set", "unknown", "--access", "read-only"),
            Wrong(1, "revoke", "a", says: "--view"),
            Wrong(1, "revoke", "b", "unknown", says: "unknown"),
            Wrong(1, "revoke", "0123456789abcdef"),
            Wrong(2, "revoke"),
            Wrong(2, "revoke", "b", "--timeout", "never"),
            Wrong(2, "set", "b", "--access", "everything"),
            Wrong(2, "set", "b", "--name", "x/y"),
            Wrong(1, "set", "b", "--name", "c"),
            Wrong(2, "nonsense", says: "nonsense"),
            Wrong(2),
            Wrong(2, "mount", "default"),
            Wrong(1, "mount", "default", "{}/missing", says: "missing"),
            Wrong(1, "mount", "default", "{}/file"),
            Wrong(1, "mount", "default", "{}/full", says: "empty"),
            Wrong(1, "mount", "default", "{}/mount", says: "mounted"),
            Wrong(1, "mount", "default", "{}/source/b/inside"),
            Wrong(2, "mount", "default", "{}/free", "-o", "rw,nonsense", says: "nonsense"),
            Wrong(2, "mount", "default", "{}/free", "-o", "cache=warm", says: "cache"),
            Wrong(2, "mount", "{}/free", "default", says: "view comes first"),
            Wrong(1, "unmount", "{}/free"),
            Wrong(1, "unmount", "default", says: "{}/mount"),
            Wrong(2, "run", "ls", "-l", says: "-- ls -l"),
            Wrong(2, "revoke", "--path", "{}/mount", says: "view"),
            Wrong(1, "revoke", "--path", "{}/mount/nothing", says: "nothing"),
        ]

        @Test("Bad input is refused with its exit status and changes no grants")
        func refused() throws {
            let fixture = try MountFixture()
            for name in ["a", "b", "c"] { try fixture.grant(try fixture.source(name)) }
            try fixture.grant(fixture.base + "/source/a", view: "another")
            try fixture.directory("source/b/inside")
            try fixture.directory("free")
            _ = try fixture.source("free")
            try Data().write(to: URL(fileURLWithPath: fixture.base + "/file"))
            try Data().write(to: URL(fileURLWithPath: try fixture.directory("full") + "/something"))
            try fixture.mount()
            var before = try fixture.grantfs("list", "--all", "--json").orThrow().text
            let mounts = fixture.mountpoints
            for wrong in Self.table {
                let output = try fixture.grantfs(wrong.arguments.map { $0.replacingOccurrences(of: "{}", with: fixture.base) })
                #expect(output.status == wrong.status, "\(output)")
                #expect(output.errors.contains("grantfs: ") && output.text.isEmpty, "\(output)")
                let says =
                    wrong.says.isEmpty
                    || output.errors.lowercased().contains(wrong.says.replacingOccurrences(of: "{}", with: fixture.base.lowercased()))
                #expect(says, "should say “\(wrong.says)”: \(output)")
                let after = try fixture.grantfs("list", "--all", "--json").orThrow().text
                let changed = after != before
                #expect(!changed, "\(output)")
                before = after
                #expect(fixture.mountpoints == mounts, "\(output)")
            }
        }

        @Test("A grant name that is not UTF-8 is refused")
        func notUTF8() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let output = try Command.shell(
                "GRANTFS_STORE=\"$2\" exec \"$1\" grant \"$3\" --name $'\\xff'", Programs.grantfs, fixture.store, source)
            #expect(output.status == 2, "\(output)")
        }

        @Test(
            "A directory that its user cannot read is refused",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root, and a plain user to act as"))
        func notReadable() throws {
            let fixture = try MountFixture(owner: Machine.plainUser!)
            let closed = fixture.base + "/closed"
            try Command.run(["install", "-d", "-m", "700", "-o", "root", closed]).orThrow()
            let output = try fixture.grantfs("grant", closed)
            #expect(output.status == 1 && output.errors.contains("grantfs: "), "\(output)")
        }

        @Test("Directories with unusual names are granted, shown and revoked")
        func strangeNames() throws {
            let fixture = try MountFixture()
            try Command.shell("cd \"$1/source\"; mkdir -- '-rf' 'a=b,c' ' ' $'new\\nline' $'\\xff\\xfe' '--all'", fixture.base).orThrow()
            try Command.shell(
                "cd \"$1/source\"; export GRANTFS_STORE=\"$3\"; for d in ./*; do \"$2\" grant \"$d\" || exit; done", fixture.base,
                Programs.grantfs, fixture.store
            ).orThrow()
            // After `--` every word is an operand.
            for name in ["--all", "-rf"] {
                try Command.shell(
                    "cd \"$1/source\"; GRANTFS_STORE=\"$3\" \"$2\" grant --view v -- \"$4\"", fixture.base, Programs.grantfs, fixture.store,
                    name
                ).orThrow()
                try fixture.grantfs("revoke", "--view", "v", "--", name).orThrow()
            }
            let list = try fixture.list()
            #expect(list.count == 6)
            let text = try fixture.grantfs("list", "--json").orThrow().bytes
            let parsed = try JSONSerialization.jsonObject(with: Data(text)) as? [[String: Any]]
            let directory = Array("\(fixture.base)/source/".utf8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            #expect(parsed?.compactMap { $0["pathHex"] as? String } == [directory + "fffe"])
            #expect(parsed?.contains { ($0["path"] as? String)?.hasSuffix("new\nline") == true } == true)
            let mountpoint = try fixture.mount()
            let shown = try Command.shell("cd \"$1\"; find . -mindepth 1 -print0 | sort -z | tr '\\0' '|'", mountpoint).bytes
            let real = try Command.shell("cd \"$1/source\"; find . -mindepth 1 -print0 | sort -z | tr '\\0' '|'", fixture.base).bytes
            #expect(shown == real)
            for grant in list { try fixture.revoke(grant.id) }
            #expect(try fixture.list().isEmpty)
        }
    }
}
