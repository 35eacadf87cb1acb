import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// `grantfs why`
    @Suite struct WhyTests {
        private struct Answer: Decodable {
            let name: String
            let view: String
            let verdict: String
            let place: String
            let paths: [String]
            let rule: Rule?
            let change: String?
            let mayContainProtected: Bool

            struct Rule: Decodable {
                let list: String
                let pattern: String?
                let place: String
            }
        }

        private func why(_ path: String, _ options: String..., of mounted: RuledMount) throws -> (answers: [Answer], status: Int32) {
            let output = try mounted.fixture.grantfs(["why", path, "--json"] + options)
            return (try output.decoded(), output.status)
        }

        @Test("It names the rule that decides, and what changes it")
        func rules() throws {
            let mounted = try RuledMount(
                rules: ["--hide", ".env*", "--hide", "!.env.example", "--hide", "out/", "--protect", ".git/hooks"],
                files: [".env", ".env.example", ".git/hooks/h", "plain", "out/x", "d/out"])
            let expected: [(path: String, verdict: String, rule: String?, place: String?)] = [
                (".env", "hidden", ".env*", ".env"), (".env.new", "hidden", ".env*", ".env.new"), ("d/.env", "hidden", ".env*", "d/.env"),
                (".env.example", "read-write", nil, nil), (".git/hooks/h", "protected", ".git/hooks", ".git/hooks"),
                (".git", "read-write", nil, nil), ("out/x", "hidden", "out/", "out"), ("out", "hidden", "out/", "out"),
                ("d/out", "read-write", nil, nil), ("plain", "read-write", nil, nil), ("", "read-write", nil, nil),
            ]
            for (path, verdict, rule, place) in expected {
                for top in [mounted.place, mounted.source] {
                    let (answers, status) = try why(top + "/" + path, of: mounted)
                    let answer = try #require(answers.first, "\(path)")
                    #expect(answers.count == 1 && answer.verdict == verdict && answer.place == path, "\(path): \(answer)")
                    #expect(answer.rule?.pattern == rule && answer.rule?.place == place, "\(path): \(answer)")
                    #expect(answer.paths == [path.isEmpty ? mounted.place : mounted.place + "/" + path])
                    #expect(answer.mayContainProtected == (path == ".git"), "\(path)")
                    #expect(status == (verdict == "hidden" ? 1 : 0))
                }
            }
            // The named commands have the named effect.
            for path in [".env", ".git/hooks/h"] {
                let change = try #require(try why(mounted.place + "/" + path, of: mounted).answers.first?.change)
                let words = ["sh", "-c", "exec \"$0\" " + change.dropFirst("grantfs ".count), Programs.grantfs]
                try Command.run(words, environment: mounted.fixture.environment).orThrow()
                #expect(try why(mounted.place + "/" + path, of: mounted).answers.first?.verdict == "read-write")
                #expect(try mounted.call("write", path) == "OK")
            }
        }

        @Test(
            "The named command permits what a rule refuses, and nothing else",
            arguments: [
                (["--hide", ".env*", "--hide", ".env"], ".env", ".env2"), (["--hide", "*.key"], "a.key", "b.key"),
                (["--hide", "/.env", "--hide", ".e*"], ".env", ".exrc"), (["--only", "src/"], "a*b", "axb"),
                (["--only", "src/"], "d/x y ", "d/x z"), (["--hide", "d/", "--hide", "x"], "d/x", "e/x"),
                (["--protect", "*.c", "--protect", "x*"], "x.c", "y.c"), (["--protect", "d"], "d/x", "e/d"),
                (["--hide", "[ab]"], "a", "b"), (["--hide", "*\\\\*"], "q\\", "r\\"),
            ])
        func change(_ rules: [String], path: String, other: String) throws {
            let mounted = try RuledMount(rules: rules, files: [path, other])
            let verdict = { try self.why(mounted.source + "/" + $0, of: mounted).answers.first?.verdict }
            #expect(try verdict(path) != "read-write" && verdict(other) != "read-write")
            let change = try #require(try why(mounted.source + "/" + path, of: mounted).answers.first?.change)
            let words = ["sh", "-c", "exec \"$0\" " + change.dropFirst("grantfs ".count), Programs.grantfs]
            try Command.run(words, environment: mounted.fixture.environment).orThrow()
            #expect(try verdict(path) == "read-write" && mounted.call("write", path) == "OK", "\(change)")
            #expect(try verdict(other) != "read-write" && mounted.call("write", other) != "OK", "\(change)")
        }

        @Test("It says the same as the mount for each name", arguments: [["--hide", "*.[ch]", "--hide", "!/d/k*"], ["--only", "d/*.c"]])
        func agrees(_ rules: [String]) throws {
            let files = ["a.c", "d/b.h", "d/k.c", "d/e/f.c", "x/y", "d/other"]
            let mounted = try RuledMount(rules: rules, files: files)
            for file in files + ["d", "d/e", "x"] {
                let isVisible = try mounted.call("stat", file) == "OK"
                let answer = try #require(try why(mounted.source + "/" + file, of: mounted).answers.first)
                #expect((answer.verdict != "hidden") == isVisible, "\(file)")
            }
        }

        @Test("It names each grant that leads to a path, and those that do not permit everything")
        func grants() throws {
            let mounted = try RuledMount(rules: ["--only", "src"], files: ["src/x", "other"])
            try mounted.fixture.grantfs("grant", mounted.source + "/src", "--read-only").orThrow()
            try mounted.fixture.grantfs("grant", mounted.source, "--view", "second").orThrow()
            func verdicts(_ path: String, _ options: String...) throws -> [String] {
                let output = try mounted.fixture.grantfs(["why", mounted.source + path, "--json"] + options).text
                let answers = try JSONDecoder().decode([Answer].self, from: Data(output.utf8))
                return answers.map { "\($0.view)/\($0.name) \($0.verdict)" }.sorted()
            }
            #expect(try verdicts("/src/x") == ["default/a read-write", "default/src read-only", "second/a read-write"])
            #expect(try verdicts("/other") == ["default/a hidden", "second/a read-write"])
            #expect(try verdicts("/other", "--view", "second") == ["second/a read-write"])
            try mounted.fixture.grantfs("revoke", "a", "--view", "second").orThrow()
            #expect(try verdicts("/other") == ["default/a hidden", "second/a unavailable"])
            let text = try mounted.fixture.grantfs("why", mounted.source + "/other")
            #expect(
                text.status == 1 && text.text.contains("no pattern of --only matches") && text.text.contains("grantfs restore"), "\(text)")
        }

        @Test(
            "It judges other spellings where they count, and so does the log",
            .enabled(if: Identity.isRoot && Command.exists("bindfs"), Comment(rawValue: Machine.needs("bindfs"))))
        func spellings() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.mountOther(["bindfs", try fixture.directory("behind")], at: source)
            let mounted = try RuledMount(
                fixture, rules: ["--hide", "secret", "--protect", ".git/hooks"], files: ["SECRET", ".GIT/Hooks/h", "other"], in: source)
            for (path, verdict) in [("SECRET", "hidden"), (".GIT/Hooks/h", "protected"), ("OTHER", "read-write")] {
                for top in [mounted.place, mounted.source] {
                    #expect(try why(top + "/" + path, of: mounted).answers.first?.verdict == verdict, "\(path)")
                }
            }
            #expect(try mounted.call("write", ".GIT/Hooks/h") == "EROFS")
            try fixture.grantfs("unmount", mounted.mountpoint).orThrow()
            let log = try fixture.grantfs("log").orThrow().text
            #expect(log.contains("by --protect “.git/hooks”"), "\(log)")
        }

        @Test("The log has what rules refused just before an unmount")
        func loggedAtUnmount() throws {
            let mounted = try RuledMount(rules: ["--hide", "x"], files: ["x"])
            #expect(try mounted.call("stat", "x") != "OK")
            try mounted.fixture.grantfs("unmount", mounted.mountpoint).orThrow()
            let log = try mounted.fixture.grantfs("log").orThrow().text
            #expect(log.contains("by --hide “x”"), "\(log)")
        }

        @Test("It answers without a grant, for strange names and beside a stopped daemon")
        func others() throws {
            let mounted = try RuledMount(rules: ["--hide", "b*"], files: ["x"])
            let none = try mounted.fixture.grantfs("why", mounted.fixture.base)
            #expect(none.status == 1 && none.errors.contains("no grant leads to"), "\(none)")
            let view = try mounted.fixture.grantfs("why", mounted.mountpoint)
            #expect(view.status == 2 && view.errors.contains("itself"), "\(view)")
            #expect(try mounted.fixture.grantfs("why", "").status == 2)
            let strange = try mounted.fixture.grantfs("why", mounted.source + "/b\u{1b}[31m\n")
            #expect(strange.status == 1 && !strange.text.contains("\u{1b}") && strange.text.contains("hidden by --hide “b*”"), "\(strange)")
            try Command.run(["mkdir", mounted.source + "/d"]).orThrow()
            symlink(mounted.source, mounted.fixture.base + "/link")
            #expect(try why(mounted.fixture.base + "/link/bb", of: mounted).answers.first?.verdict == "hidden")
            let daemon = try mounted.fixture.daemon(at: mounted.mountpoint)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            #expect(try why(mounted.place + "/bb", of: mounted).answers.first?.verdict == "hidden", "it asks no daemon")
        }
    }
}
