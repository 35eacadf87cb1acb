import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Files that declare grants.
    @Suite struct DeclaredGrants {
        private struct Applied: Decodable {
            struct Grant: Decodable {
                let action: String
                let view: String
                let name: String
                let id: String?
                let reason: String?
                let mounts: [ConfirmationDocument]?
            }
            let dryRun: Bool
            let changed: Int
            let grants: [Grant]
        }

        private func write(_ text: String, _ fixture: MountFixture, as name: String = "f.grants") throws -> String {
            let file = fixture.base + "/" + name
            try Data(text.replacingOccurrences(of: "{}", with: fixture.base).utf8).write(to: URL(fileURLWithPath: file))
            return file
        }

        private func apply(_ fixture: MountFixture, _ words: String...) throws -> Applied {
            try fixture.grantfs(["apply"] + words + ["--json"]).orThrow().decoded()
        }

        private func actions(_ applied: Applied) -> [String] { applied.grants.map { "\($0.action) \($0.view)/\($0.name)" } }

        private static let both = """
            [[grant]]
            view = "ci"
            path = "{}/source/a"

            [[grant]]
            view = "ci"
            name = "data"
            path = "{}/source/b"
            access = "read-only"
            expires = 2099-01-31T12:00:00Z
            """

        private func sources() throws -> MountFixture {
            let fixture = try MountFixture()
            for name in ["a", "b", "c"] { try Data(name.utf8).write(to: URL(fileURLWithPath: try fixture.source(name) + "/file")) }
            return fixture
        }

        @Test("`apply` grants, changes and withdraws as a file declares, once")
        func states() throws {
            let fixture = try sources()
            let file = try write(Self.both, fixture)
            #expect(actions(try apply(fixture, file)) == ["create ci/a", "create ci/data"])
            let mountpoint = try fixture.mount("ci")
            let first = try fixture.list()
            #expect(first.map(\.access) == ["read-write", "read-only"] && first[1].expires == "2099-01-31T12:00:00Z")
            let same = try fixture.grantfs("apply", file).orThrow()
            #expect(same.text == "nothing to change: 2 as declared\n")
            #expect(try fixture.list().map(\.id) == first.map(\.id))

            _ = try write(
                """
                [[grant]]
                view = "ci"
                name = "data"
                path = "{}/source/b"

                [[grant]]
                view = "ci"
                path = "{}/source/c"
                coordination = "mandatory"
                """, fixture)
            let shown = try fixture.grantfs("apply", file, "--dry-run").orThrow()
            #expect(
                shown.lines == [
                    "view ci", "  - a  \(fixture.base)/source/a, withdrawn and forgotten",
                    "  + c  \(fixture.base)/source/c, read-write, mandatory",
                    shown.lines.first { $0.hasPrefix("  ~ data  access read-only → read-write, expires ") && $0.hasSuffix(" → never") }
                        ?? "~ data",
                    "3 changes, 0 as declared already",
                ])
            #expect(try fixture.list().map(\.id) == first.map(\.id))
            let applied = try apply(fixture, file)
            #expect(applied.changed == 3 && applied.grants.allSatisfy { $0.mounts?.allSatisfy(\.confirmed) == true })
            #expect(try Command.run(["ls", mountpoint]).orThrow().lines == ["c", "data"])
            try Command.run(["touch", mountpoint + "/data/new"]).orThrow()
            try expectCall("stat", mountpoint + "/a", gives: "ENOENT")
            #expect(try fixture.list().first { $0.name == "data" }?.id == first[1].id)
        }

        @Test("`apply` leaves other views unchanged and empties a named view")
        func views() throws {
            let fixture = try sources()
            try fixture.grant(fixture.base + "/source/a", view: "mine")
            try fixture.grant(fixture.base + "/source/a", view: "gone")
            let file = try write("views = [\"gone\"]\n\n" + Self.both, fixture)
            #expect(actions(try apply(fixture, file)) == ["create ci/a", "create ci/data", "withdraw gone/a"])
            #expect(try fixture.list().map(\.view) == ["ci", "ci", "mine"])
        }

        @Test("`apply` changes no grants if the file has an error")
        func wrong() throws {
            let fixture = try sources()
            try fixture.grant(fixture.base + "/source/a", name: "old", view: "ci")
            let before = try fixture.grantfs("list", "--json", "--all").orThrow().text
            let wrong: [(String, String)] = [
                ("[[grant]]\nview = \"ci\"\npath = \"{}/nowhere\"", "f.grants:5: “"),
                ("[[grant]]\nview = \"ci\"\npath = \"{}/store\"", "f.grants:5: “"),
                ("[[grant]]\nview = \"ci\"\nname = \"a\"\npath = \"{}/source/b\"", "f.grants:5: “a” is in the view “ci” already"),
                ("[[grant]]\nview = ci", "f.grants:6: this is not TOML"),
                ("[[grant]]\nviw = \"ci\"\npath = \"{}/source/b\"", "did you mean “view”?"),
            ]
            for (text, says) in wrong {
                let file = try write("[[grant]]\nview = \"ci\"\npath = \"{}/source/a\"\n\n" + text, fixture)
                for more in [[], ["--dry-run"], ["--json"]] {
                    let output = try fixture.grantfs(["apply", file] + more)
                    #expect(output.status == 1 && output.text.isEmpty && output.errors.contains(says), "\(output)")
                }
            }
            let missing = try fixture.grantfs("apply", fixture.base + "/no.grants")
            #expect(missing.status == 1 && missing.errors.contains("no.grants cannot be read"), "\(missing)")
            #expect(try fixture.grantfs("list", "--json", "--all").orThrow().text == before)
        }

        @Test("`apply` restores revoked grants only with `--restore`")
        func revoked() throws {
            let fixture = try sources()
            let file = try write(Self.both, fixture)
            _ = try apply(fixture, file)
            try fixture.grantfs("revoke", "a").orThrow()
            let left = try apply(fixture, file)
            #expect(actions(left) == ["leave ci/a", "keep ci/data"] && left.grants[0].reason?.contains("--restore") == true)
            #expect(try fixture.list("--all").map(\.state) == ["revoked", "active"])
            #expect(actions(try apply(fixture, file, "--restore")) == ["restore ci/a", "keep ci/data"])
            #expect(try fixture.list().count == 2)
        }

        @Test("`apply` replaces the grant of a replaced directory and keeps a moved one")
        func moved() throws {
            let fixture = try sources()
            let file = try write(Self.both, fixture)
            _ = try apply(fixture, file)
            let before = try fixture.list()
            try FileManager.default.moveItem(atPath: fixture.base + "/source/a", toPath: fixture.base + "/source/moved")
            #expect(actions(try apply(fixture, file)) == ["keep ci/a", "keep ci/data"])
            #expect(try fixture.list().map(\.id) == before.map(\.id))
            _ = try fixture.source("a")
            let applied = try apply(fixture, file)
            #expect(actions(applied) == ["replace ci/a", "keep ci/data"])
            let after = try fixture.list()
            #expect(after[0].id != before[0].id && after[0].id == applied.grants[0].id && after[0].path == fixture.base + "/source/a")
        }

        @Test("`apply` reads every .grants file of a directory, or standard input")
        func directory() throws {
            let fixture = try sources()
            let directory = try fixture.directory("etc")
            _ = try write("[[grant]]\nview = \"ci\"\npath = \"{}/source/a\"", fixture, as: "etc/1.grants")
            _ = try write("[[grant]]\nview = \"ci\"\npath = \"{}/source/b\"", fixture, as: "etc/2.grants")
            _ = try write("this is no TOML", fixture, as: "etc/ci.conf")
            #expect(actions(try apply(fixture, directory)) == ["create ci/a", "create ci/b"])
            let input = try Command.run(
                [Programs.grantfs, "apply", "-"], environment: fixture.environment,
                input: "[[grant]]\nview = \"ci\"\npath = \"\(fixture.base)/source/b\"")
            #expect(input.status == 0 && input.text.contains("  - a  "), "\(input)")
            #expect(try fixture.list().map(\.name) == ["b"])
        }

        @Test(
            "`apply` by root refuses files that other users could have written",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func othersFiles() throws {
            let fixture = try sources()
            let directory = try fixture.directory("etc")
            let file = try write("[[grant]]\npath = \"{}/source/a\"", fixture, as: "etc/1.grants")
            let spoil: [(String, mode_t, uid_t)] = [
                (file, 0o666, 0), (file, 0o620, 0), (file, 0o644, 1), (directory, 0o777, 0), (directory, 0o755, 1),
            ]
            for (path, mode, owner) in spoil {
                chmod(path, mode)
                chown(path, owner, 0)
                let output = try fixture.grantfs("apply", directory)
                #expect(output.status == 1 && output.errors.contains("is not read"), "\(output)")
                chmod(path, path == file ? 0o644 : 0o755)
                chown(path, 0, 0)
            }
            #expect(!FileManager.default.fileExists(atPath: fixture.store))
            chmod(file, 0o666)
            #expect(actions(try apply(fixture, file)) == ["create default/a"])
        }

        @Test("`apply` creates no store on a dry run or an error")
        func noStore() throws {
            let fixture = try sources()
            let dry = try fixture.grantfs("apply", "--dry-run", try write(Self.both, fixture)).orThrow()
            #expect(dry.text.contains("2 changes"), "\(dry)")
            #expect(try fixture.grantfs("apply", try write("[[grant]]\npath = \"{}/nowhere\"", fixture)).status == 1)
            #expect(!FileManager.default.fileExists(atPath: fixture.store))
        }

        @Test("`export` prints declarations that `apply` accepts unchanged")
        func export() throws {
            let fixture = try sources()
            try fixture.grant(fixture.base + "/source/a", name: "read", "--read-only", "--expires", "2h")
            try Command.shell("mkdir \"$1\"/source/$'odd\\xff \"name\"'", fixture.base).orThrow()
            try Command.shell(
                "GRANTFS_STORE=\"$2\" \"$3\" grant --view other -- \"$1\"/source/odd*", fixture.base, fixture.store, Programs.grantfs
            ).orThrow()
            try fixture.grant(fixture.base + "/source/b", view: "over")
            try fixture.grantfs("revoke", "b").orThrow()
            let text = try fixture.grantfs("export").orThrow().text
            let file = try write(text, fixture)
            #expect(actions(try apply(fixture, file)).filter { !$0.hasPrefix("keep") }.isEmpty)
            // In a store of its own it makes the same.
            let second = fixture.base + "/second"
            try fixture.grantfs("apply", "--store", second, file).orThrow()
            let grants = text.replacingOccurrences(of: "views = [\"over\"]\n\n", with: "")
            #expect(grants != text)
            #expect(try fixture.grantfs("export", "--store", second).orThrow().text == grants)
            #expect(try fixture.grantfs("export", "--view", "other").orThrow().text.contains("Hex = \"6f6464ff20226e616d6522\""))
        }

        @Test(
            "`export` omits the grants of a running sandbox",
            .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
        func passing() throws {
            let fixture = try sources()
            try fixture.grant(fixture.base + "/source/a")
            let child = try Child(
                [Programs.grantfs, "run", "--grant", fixture.base + "/source/b", "--", "sh", "-c", "echo runs; read line"],
                environment: fixture.environment)
            try child.expect("runs")
            #expect(try fixture.list().count == 2)
            let text = try fixture.grantfs("export").orThrow().text
            #expect(text.contains("/source/a") && !text.contains("run-") && !text.contains("/source/b"), "\(text)")
            child.send("")
            #expect(child.wait(within: 60) == 0)
        }

        @Test("`apply` asks on a terminal before it withdraws a grant", .enabled(if: Command.exists("script"), "needs script(1)"))
        func question() throws {
            let fixture = try sources()
            try fixture.grant(fixture.base + "/source/c", view: "ci")
            let file = try write(Self.both, fixture)
            let no = try Command.run(
                ["script", "-qec", "\(Programs.grantfs) apply '\(file)'", "/dev/null"], environment: fixture.environment, input: "n",
                within: 60)
            #expect(no.status == 1 && no.text.contains("- c") && no.text.contains("nothing was changed"), "\(no)")
            #expect(try fixture.list().map(\.name) == ["c"])
            try Command.run(
                ["script", "-qec", "\(Programs.grantfs) apply -y '\(file)'", "/dev/null"], environment: fixture.environment, input: "",
                within: 60
            ).orThrow()
            #expect(try fixture.list().map(\.name) == ["a", "data"])
        }

        @Test("`apply` exits with 3 if a mount has not confirmed the change")
        func unconfirmed() throws {
            let fixture = try sources()
            let file = try write(Self.both, fixture)
            _ = try apply(fixture, file)
            let mountpoint = try fixture.mount("ci")
            let daemon = try fixture.daemon(at: mountpoint)
            try fixture.killDaemon(at: mountpoint, with: SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let narrowed = try write(
                Self.both.replacingOccurrences(of: "/source/a\"", with: "/source/a\"\naccess = \"read-only\""), fixture)
            #expect(try fixture.grantfs("apply", narrowed, "--timeout", "0.2").status == 3)
            let again = try fixture.grantfs("apply", narrowed, "--timeout", "0.2")
            #expect(again.status == 3 && again.text.contains("nothing to change"), "\(again)")
            kill(daemon, SIGCONT)
            #expect(try fixture.grantfs("apply", narrowed).status == 0)
            try fixture.killDaemon(at: mountpoint, with: SIGSTOP)
            let empty = try write("views = [\"ci\"]", fixture)
            let output = try fixture.grantfs("apply", empty, "--timeout", "0.2")
            #expect(output.status == 3 && output.errors.contains("has not confirmed it"), "\(output)")
        }
    }
}
