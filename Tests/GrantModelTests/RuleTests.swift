import GrantModel
import Testing

@Suite struct RuleTests {
    static func rules(hide: [String] = [], protect: [String] = [], only: [String] = []) throws -> GrantRules {
        let patterns = { (list: [String]) throws(GrantError) -> [RulePattern] in
            var patterns: [RulePattern] = []
            for text in list { patterns.append(try RulePattern(Array(text.utf8))) }
            return patterns
        }
        return try GrantRules(hide: try patterns(hide), protect: try patterns(protect), only: try patterns(only))
    }

    static func refusal(_ body: () throws(GrantError) -> Void) -> GrantError? {
        do throws(GrantError) {
            try body()
            return nil
        } catch {
            return error
        }
    }

    static func judge(_ rules: GrantRules, _ path: String) -> RuleProgram.Verdict {
        let names = path.utf8.split(separator: UInt8(ascii: "/")).map { ArraySlice(Array($0)) }
        return RuleProgram(rules).judge(path: names, isDirectory: path.hasSuffix("/")).verdict
    }

    @Test(
        "A pattern that cannot match is a usage error with its reason",
        arguments: [
            ("", "it is empty"), ("#x", "it is a comment in gitignore(5)"), ("x ", "it ends with a space"),
            ("x\\\\ ", "it ends with a space"), ("/", "it names nothing"),
            ("!", "it names nothing"), ("a//b", "it contains an empty name"), ("..", "names are never . or .."),
            ("./a", "names are never . or .."), ("a/../b", "names are never . or .."), ("a\\", "it ends with a backslash"),
            ("[a", "a bracket is not closed"), ("[[:word:]]", "it names an unknown class of characters"),
            ("a\0b", "it contains a zero byte"),
        ])
    func invalidPatterns(_ text: String, _ cause: String) {
        let error = Self.refusal { () throws(GrantError) in _ = try RulePattern(Array(text.utf8)) }
        #expect(error?.code == .usage)
        #expect(error?.cause == cause)
    }

    @Test("A pattern has 4,095 bytes at most, and a message shows its beginning")
    func longPatterns() throws {
        _ = try RulePattern(Array(repeating: 0x61, count: 4_095))
        let error = Self.refusal { () throws(GrantError) in _ = try RulePattern(Array(repeating: 0x61, count: 4_096)) }
        #expect(error?.code == .usage && error?.cause == "it is longer than 4095 bytes")
        #expect((error?.message.count ?? 0) < 130)
    }

    @Test(
        "Rules that hide everything or contradict each other are a usage error",
        arguments: [
            (["*"], [], []), (["**"], [], []), (["**/*"], [], []), (["a", "/*"], [], []), ([], [], ["!a"]), ([".env", "!.env"], [], []),
            (["a"], ["a"], []), (["a"], [], ["a"]),
        ])
    func senselessRules(_ hide: [String], _ protect: [String], _ only: [String]) {
        let error = Self.refusal { () throws(GrantError) in
            do { _ = try Self.rules(hide: hide, protect: protect, only: only) } catch let error as GrantError { throw error } catch {}
        }
        #expect(error?.code == .usage)
    }

    @Test("A grant has 4,096 patterns at most")
    func manyPatterns() throws {
        let names = (0..<4_097).map { "name\($0)" }
        #expect(try Self.rules(hide: Array(names.dropLast())).hide.count == 4_096)
        let error = Self.refusal { () throws(GrantError) in
            do { _ = try Self.rules(hide: names) } catch let error as GrantError { throw error } catch {}
        }
        #expect(error?.code == .usage && error?.message == "too many rules for one grant")
    }

    @Test(
        "A hidden name is decided by the last pattern that matches it",
        arguments: [
            ([".env*", "!.env.example"], ".env", true), ([".env*", "!.env.example"], "a/b/.env.local", true),
            ([".env*", "!.env.example"], "a/.env.example", false), (["/config"], "config", true), (["/config"], "a/config", false),
            (["build/"], "a/build/", true), (["build/"], "build", false), (["a/**/z"], "a/z", true), (["a/**/z"], "a/b/c/z", true),
            (["**/k/x"], "k/x", true), (["a/b"], "c/a/b", false), (["k", "!k/x"], "k/x", true), (["[!a-c]z"], "dz", true),
            (["[!a-c]z"], "bz", false), (["\\!x"], "!x", true), (["*.k"], ".k", true), (["logs/**"], "logs/", false),
            (["logs/**"], "logs/a/b", true),
        ])
    func hiding(_ patterns: [String], _ path: String, _ isHidden: Bool) throws {
        #expect(Self.judge(try Self.rules(hide: patterns), path).isHidden == isHidden)
    }

    @Test("Everything below a protected directory is protected")
    func protecting() throws {
        let rules = try Self.rules(protect: ["**/.git/hooks", "*.lock", "!a.lock"])
        for (path, isProtected) in [
            (".git/hooks/", true), ("sub/.git/hooks/pre-commit", true), (".git/", false), (".git/index", false), ("b.lock", true),
            ("a.lock", false), (".git/hooks/a.lock", true),
        ] {
            let verdict = Self.judge(rules, path)
            #expect(verdict.isProtected == isProtected && !verdict.isHidden, "\(path)")
        }
    }

    @Test("Patterns of only show their matches and the directories on the way")
    func onlySome() throws {
        let rules = try Self.rules(hide: ["secret"], only: ["/src/api", "/README", "!/src/api/old"])
        for (path, isHidden) in [
            ("src/", false), ("src", true), ("src/other", true), ("src/api/", false), ("src/api/deep/file", false), ("README", false),
            ("docs/", true), ("src/api/secret", true), ("a/README", true),
        ] {
            #expect(Self.judge(rules, path).isHidden == isHidden, "\(path)")
        }
    }

    @Test("Rules are read back from the form in which a store keeps them")
    func encoding() throws {
        let rules = try Self.rules(hide: [".env*", "!x"], protect: ["a/b/"], only: ["*.c"])
        #expect(try GrantRules(encoded: rules.encoded) == rules)
        #expect(try GrantRules(hide: [try RulePattern([0xFF, 0x2A])]).encoded == [0x68, 0xFF, 0x2A, 0])
        #expect(GrantRules.none.encoded.isEmpty)
        for damaged: [UInt8] in [[0x78, 0x61, 0], [0x68, 0x61], [0x68, 0]] {
            #expect(Self.refusal { () throws(GrantError) in _ = try GrantRules(encoded: damaged) } != nil, "\(damaged)")
        }
    }

    @Test(
        "Rules narrow others only if patterns that take away are added",
        arguments: [
            ([], ["a"], true), (["a"], ["a", "b"], true), (["a"], ["b", "a"], true), (["a"], [], false), (["a"], ["b"], false),
            (["a"], ["a", "!ab"], false), (["a*", "!ab"], ["a*", "!ab", "c"], true), (["a*", "!ab"], ["a*"], false), (["a"], ["a"], true),
        ])
    func narrowing(_ old: [String], _ new: [String], _ narrows: Bool) throws {
        #expect(try Self.rules(hide: new).narrows(try Self.rules(hide: old)) == narrows)
        #expect(try Self.rules(protect: new).narrows(try Self.rules(protect: old)) == narrows)
    }

    @Test("The first pattern of only narrows, and another one does not")
    func narrowingOnly() throws {
        #expect(try Self.rules(only: ["a"]).narrows(.none))
        #expect(try !Self.rules(only: ["a", "b"]).narrows(try Self.rules(only: ["a"])))
        #expect(try Self.rules(only: ["a", "!ab"]).narrows(try Self.rules(only: ["a"])))
        #expect(!GrantRules.none.narrows(try Self.rules(only: ["a"])))
    }

    @Test("A change of rules replaces the given lists and is described")
    func changing() throws {
        let rules = try Self.rules(hide: [".env"], protect: ["x"])
        let change = RuleChange(hide: [try RulePattern(Array(".env".utf8)), try RulePattern(Array("*.key".utf8))])
        let new = try change.result(of: rules)
        #expect(new == (try Self.rules(hide: [".env", "*.key"], protect: ["x"])))
        #expect(rules.differences(to: new) == ["hide .env → .env, *.key"])
        #expect(rules.differences(to: .none) == ["hide .env → nothing", "protect x → nothing"])
        let many = try Self.rules(hide: (0..<4_000).map { "name\($0)" })
        #expect(rules.differences(to: many)[0].hasSuffix("more") && rules.differences(to: many)[0].count < 600)
    }
}
