import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Patterns of names on the command line and in files. No view is mounted here.
    @Suite struct RuleCommands {
        private struct Document: Decodable {
            struct Rules: Decodable, Equatable {
                var hide: [String] = []
                var protect: [String] = []
                var only: [String] = []
                var hideHex: [String]?
            }
            let id: String
            let rules: Rules
        }

        private func rules(_ fixture: MountFixture) throws -> [Document.Rules] {
            let documents: [Document] = try fixture.grantfs("list", "--json").orThrow().decoded()
            return documents.map(\.rules)
        }

        @Test("`grant` records patterns, and `list` shows them in a column, by name and as JSON")
        func granted() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grantfs("grant", source, "--hide", ".env*", "--hide=!.env.example", "--protect", ".git/hooks", "--only", "*.c")
                .orThrow()
            try fixture.grant(try fixture.source("b"))
            #expect(
                try rules(fixture) == [
                    .init(hide: [".env*", "!.env.example"], protect: [".git/hooks"], only: ["*.c"]), .init(),
                ])
            let lines = try fixture.grantfs("list").orThrow().lines
            #expect(lines[0].contains("RULES") && lines[1].contains("hide 2, protect 1, only 1") && lines[2].contains("none"), "\(lines)")
            let one = try fixture.grantfs("list", "a").orThrow().lines
            for line in ["hide      .env*", "hide      !.env.example", "protect   .git/hooks", "only      *.c"] {
                #expect(one.contains(line), "\(one)")
            }
        }

        @Test("`list` has no column for rules if no grant has any")
        func noColumn() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            #expect(try !fixture.grantfs("list").orThrow().text.contains("RULES"))
        }

        @Test("`set` replaces each list that is given, and prints old and new")
        func changed() throws {
            let fixture = try MountFixture()
            try fixture.grantfs("grant", try fixture.source("a"), "--hide", ".env", "--protect", "x").orThrow()
            let output = try fixture.grantfs("set", "a", "--hide", ".env", "--hide", "*.key").orThrow()
            #expect(output.text.contains("  hide .env → .env, *.key"), "\(output)")
            #expect(try rules(fixture) == [.init(hide: [".env", "*.key"], protect: ["x"])])
            try fixture.grantfs("set", "a", "--hide", "", "--only", "src/").orThrow()
            #expect(try rules(fixture) == [.init(protect: ["x"], only: ["src/"])])
            let removed = try fixture.grantfs("set", "a", "--no-rules").orThrow()
            #expect(removed.text.contains("protect x → nothing") && removed.text.contains("only src/ → nothing"), "\(removed)")
            #expect(try rules(fixture) == [.init()])
            #expect(try fixture.grantfs("log").orThrow().text.contains("hide .env → .env, *.key"))
        }

        @Test("A grant with the same rules is kept, and one with others fails with advice")
        func again() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let id = try fixture.grantfs("grant", source, "--hide", ".env").orThrow().trimmed
            #expect(try fixture.grantfs("grant", source, "--hide", ".env").orThrow().trimmed == id)
            for (words, says) in [
                (["--hide", "*.key"], "grantfs set a --hide, --protect or --only changes it"), ([], "grantfs set a --no-rules changes it"),
            ] {
                let output = try fixture.grantfs(["grant", source] + words)
                #expect(output.status == 1 && output.errors.contains(says), "\(output)")
            }
        }

        @Test("Patterns of bytes that are not UTF-8 are kept, listed in hexadecimal, exported and applied")
        func bytes() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.shell(
                #""$1" grant --store "$2" "$3" --hide "$(printf 'a\377')" --hide b >/dev/null"#,
                Programs.grantfs(in: fixture.environment, for: fixture.owner), fixture.store, source
            ).orThrow()
            #expect(try rules(fixture) == [.init(hide: ["a\u{FFFD}", "b"], hideHex: ["61ff", "62"])])
            let text = try fixture.grantfs("export").orThrow().text
            #expect(text.contains(#"hideHex = ["61ff", "62"]"#), "\(text)")
            let file = fixture.base + "/f.grants"
            try Data(text.utf8).write(to: URL(fileURLWithPath: file))
            #expect(try fixture.grantfs("apply", file).orThrow().text == "nothing to change: 1 as declared\n")
        }

        @Test("`export` writes rules, and `apply` makes, changes and removes them")
        func declared() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let file = fixture.base + "/f.grants"
            let write = { (rules: String) in
                try Data("[[grant]]\npath = \"\(source)\"\n\(rules)".utf8).write(to: URL(fileURLWithPath: file))
            }
            try write("hide = [\".env*\"]\nprotect = [\".git/hooks\"]\nonly = [\"src/\", \"!src/x\"]\n")
            let made = try fixture.grantfs("apply", file).orThrow()
            #expect(made.text.contains("hide .env*, protect .git/hooks, only src/, !src/x"), "\(made)")
            #expect(try rules(fixture) == [.init(hide: [".env*"], protect: [".git/hooks"], only: ["src/", "!src/x"])])
            let exported = try fixture.grantfs("export").orThrow().text
            try Data(exported.utf8).write(to: URL(fileURLWithPath: file))
            #expect(exported.contains("hide = [\".env*\"]\nprotect = [\".git/hooks\"]\nonly = [\"src/\", \"!src/x\"]\n"), "\(exported)")
            #expect(try fixture.grantfs("apply", file).orThrow().text == "nothing to change: 1 as declared\n")
            try write("hide = [\".env*\", \"*.key\"]\n")
            let changed = try fixture.grantfs("apply", file).orThrow()
            #expect(changed.text.contains("~ a  hide .env* → .env*, *.key, protect .git/hooks → nothing"), "\(changed)")
            #expect(try rules(fixture) == [.init(hide: [".env*", "*.key"])])
            try write("")
            try fixture.grantfs("apply", file).orThrow()
            #expect(try rules(fixture) == [.init()])
            for (text, says) in [
                ("hide = [\"[\"]", ":3: invalid pattern “[”: a bracket is not closed"), ("hide = \"x\"", ":3: “hide” is a list"),
                ("hide = [\"a\"]\nprotect = [\"a\"]", ":1: rules contradict each other"), ("hide = [\"*\"]", "hides everything"),
                ("hide = [\"a\"]\nhideHex = [\"61\"]", "both “hide” and “hideHex”"),
            ] {
                try write(text)
                let output = try fixture.grantfs("apply", file)
                #expect(output.status == 1 && output.errors.contains(says), "\(output)")
            }
            #expect(try rules(fixture) == [.init()])
        }

        @Test("Wrong patterns are usage errors, and nothing is granted or changed")
        func wrong() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let other = try fixture.source("b")
            try fixture.grant(source, "--hide", ".env")
            let file = fixture.base + "/file"
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            let many = (0..<5_000).flatMap { ["--hide", "name\($0)"] }
            for (words, says) in [
                (["--hide", "["], "invalid pattern “[”: a bracket is not closed"), (["--protect", "a//b"], "it contains an empty name"),
                (["--hide", "#x"], "write \\# for a name with #"), (["--hide", "*"], "“*” hides everything in the grant"),
                (["--hide", "a", "--protect", "a"], "rules contradict each other: --hide “a” and --protect “a”"),
                (["--only", "!a"], "--only makes nothing visible"), (many, "too many rules for one grant"),
                (["--hide", String(repeating: "x", count: 5_000)], "it is longer than 4095 bytes"),
                (["--hide", "", "--hide", "x"], "invalid pattern “”: it is empty"),
            ] {
                for command in [["grant", other], ["set", "a"], ["run", "--grant", other]] {
                    let output = try fixture.grantfs(command + words + (command[0] == "run" ? ["--", "true"] : []))
                    #expect(output.status == 2 && output.errors.contains(says), "\(output)")
                }
            }
            for words in [
                ["grant", file, "--hide", "x"], ["set", "a", "--no-rules", "--hide", "x"], ["set", "a"],
                ["run", "--grant", file, "--hide", "x", "--", "true"], ["run", "--hide", "x", "--", "true"],
                ["run", "--protect-tools", "--", "true"],
            ] {
                let output = try fixture.grantfs(words)
                #expect(output.status == 2, "\(output)")
            }
            #expect(try rules(fixture) == [.init(hide: [".env"])])
        }

        @Test("A grant of a file takes no rules later either")
        func files() throws {
            let fixture = try MountFixture()
            let file = fixture.base + "/file"
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            try fixture.grant(file)
            let output = try fixture.grantfs("set", "file", "--hide", "x")
            #expect(output.status == 2 && output.errors.contains("is a file, and rules are for directories"), "\(output)")
            try Data("[[grant]]\npath = \"\(file)\"\nhide = [\"x\"]\n".utf8).write(to: URL(fileURLWithPath: fixture.base + "/f.grants"))
            let applied = try fixture.grantfs("apply", fixture.base + "/f.grants")
            #expect(applied.status == 1 && applied.errors.contains("hide, protect and only are for directories"), "\(applied)")
        }
    }
}
