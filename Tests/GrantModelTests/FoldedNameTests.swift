import GrantModel
import Testing

/// Names in directories that ignore case.
@Suite struct FoldedNameTests {
    private func folded(_ name: String) -> [UInt8] { Array(name.utf8).withUnsafeBufferPointer { FoldedName.of($0) } }

    @Test(
        "All spellings of a name have one form",
        arguments: [
            (".git", ".GIT"), ("hooks", "HOOK\u{17F}"), ("key", "\u{212A}EY"), ("hooks", "ho\u{200B}oks"), (".env", ".en\u{AD}v"),
            ("caf\u{E9}", "CAFE\u{301}"), ("stra\u{DF}e", "STRASSE"), ("fi", "\u{FB01}"), ("\u{3C3}", "\u{3C2}"),
            ("a", "\u{FE0F}A\u{E0100}"),
        ])
    func equal(name: String, other: String) { #expect(folded(name) == folded(other)) }

    @Test("Other names have other forms", arguments: [(".env", ".env2"), ("a", "\u{E4}"), ("a.", "a"), ("i", "\u{131}\u{307}")])
    func different(name: String, other: String) { #expect(folded(name) != folded(other)) }

    @Test("A name that is not text keeps its bytes")
    func bytes() { #expect([0xFF, 0x41].withUnsafeBufferPointer { FoldedName.of($0) } == [0xFF, 0x61]) }

    private func judge(_ rules: GrantRules, _ name: String) -> (isHidden: Bool, isProtected: Bool) {
        let program = RuleProgram(rules)
        var next = RuleProgram.State()
        let verdict = Array(name.utf8).withUnsafeBufferPointer { name in
            FoldedName.of(name).withUnsafeBufferPointer {
                program.judge(name, in: program.top, isDirectory: false, folded: $0, next: &next)
            }
        }
        return (verdict.isHidden, verdict.isProtected)
    }

    @Test("A pattern that hides or protects holds for all spellings")
    func refusing() throws {
        let rules = try GrantRules(
            hide: [".env*", "SECRET.[TX]*", "[!a]x"].map { try RulePattern($0) },
            protect: ["Makefile", "Caf\u{E9}"].map { try RulePattern($0) })
        for name in [".ENV", ".\u{200B}env.local", "secret.txt", "Secret.XML", "BX"] { #expect(judge(rules, name).isHidden, "\(name)") }
        for name in ["makefile", "MAKEFILE", "cafe\u{301}", "CAF\u{C9}"] { #expect(judge(rules, name).isProtected, "\(name)") }
        for name in ["env", "secret.doc", "ax", "AX", "makefiles"] {
            #expect(judge(rules, name) == (false, false), "\(name)")
        }
    }

    @Test("It is asked whether a directory ignores case where that matters, and the answer decides")
    func asking() throws {
        let patterns = [".env", "SECRET", "[a-c]x", "[A-C]y", "Caf\u{E9}", "*.Key", "a*", "!Abc", "[!q]z", "d/e"].map {
            try! RulePattern($0)
        }
        let names = [
            ".env", ".ENV", "secret", "SECRET", "ax", "AX", "ay", "AY", "cafe\u{301}", "x.key", "x.KEY", "abc", "ABC", "qz", "QZ", "D",
        ]
        var asked = 0
        for (list, pattern) in patterns.flatMap({ [($0, [$0]), ($0, patterns)] }).map({ ($0.1, $0.0) }) {
            for rules in [
                try GrantRules(hide: list), try GrantRules(protect: list), try GrantRules(only: [try RulePattern("keep"), pattern]),
            ] {
                let program = RuleProgram(rules)
                for name in names {
                    Array(name.utf8).withUnsafeBufferPointer { name in
                        FoldedName.of(name).withUnsafeBufferPointer { folded in
                            var next = (RuleProgram.State(), RuleProgram.State())
                            for ignoresCase in [false, true] {
                                let expected = program.judge(
                                    name, in: program.top, isDirectory: true, folded: ignoresCase ? folded : nil, next: &next.0)
                                let verdict = program.judge(name, in: program.top, isDirectory: true, next: &next.1) {
                                    asked += 1
                                    return ignoresCase
                                }
                                #expect(verdict == expected && next.0 == next.1)
                            }
                        }
                    }
                }
            }
        }
        #expect(asked > 20)
        let program = RuleProgram(try GrantRules(hide: [try RulePattern(".env")]))
        var next = RuleProgram.State()
        let name = Array(".ENV".utf8)
        #expect(name.withUnsafeBufferPointer { program.judge($0, in: program.top, isDirectory: false, next: &next) { nil } }.isHidden)
    }

    @Test("A pattern that shows or permits holds for its own spelling")
    func permitting() throws {
        let rules = try GrantRules(
            hide: [".env*", "!.env.example"].map { try RulePattern($0) }, only: ["src", "*.example"].map { try RulePattern($0) })
        #expect(!judge(rules, "src").isHidden && judge(rules, "SRC").isHidden)
        #expect(!judge(rules, ".env.example").isHidden && judge(rules, ".ENV.example").isHidden)
    }
}
