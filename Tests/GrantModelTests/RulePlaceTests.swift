import GrantModel
import Testing

/// The rules of a grant, for a directory in it that gets a grant of its own.
@Suite struct RulePlaceTests {
    private static func text(_ patterns: [RulePattern]) -> [String] { patterns.map { String(decoding: $0.text, as: UTF8.self) } }

    @Test(
        "A directory of a grant has the rules that hold below it",
        arguments: [
            (["/a/secret", "x", "!/a/b/x"], "a", ["/secret", "x", "!/b/x"]),
            (["/a/secret", "x"], "b", ["x"]),
            (["a/b/c/"], "a/b", ["/c/"]),
            (["a/**/z"], "a/q", ["/**/z", "/z"]),
            (["**/.git/hooks"], "x/.git", ["**/.git/hooks", "/hooks"]),
            (["*/x", "!a/x"], "a", ["!/x"]),
            (["a/[b/]c", "\\a/d\\ "], "a", ["/[b/]c", "/d\\ "]),
            (["a/b\\/c"], "a", ["/b\\/c"]),
            (["a/b\\/c"], "a/b", ["/c"]),
            (["/a/x"], "", ["/a/x"]),
        ])
    func hidden(_ hide: [String], _ path: String, _ expected: [String]) throws {
        let place = try #require(try RuleTests.rules(hide: hide).place(at: Array(path.utf8)))
        #expect(Self.text(place.rules.hide) == expected && !place.isProtected)
    }

    @Test(
        "A hidden directory has no place, nor one in which everything is hidden",
        arguments: [
            (["x"], [], "a/x"), (["x"], [], "x/a"), (["/a/b"], [], "a/b/c"), (["a/*"], [], "a"), ([], ["a/b"], "c"), ([], ["a/b"], "a/c"),
            ([], ["/a", "!/b"], "b"), (["x/"], [], "x"),
        ])
    func noPlace(_ hide: [String], _ only: [String], _ path: String) throws {
        #expect(try RuleTests.rules(hide: hide, only: only).place(at: Array(path.utf8)) == nil)
    }

    @Test("A protected directory is told, and what alone is visible goes on in it")
    func otherLists() throws {
        let rules = try RuleTests.rules(protect: [".git", "/a/kept"], only: ["/a/b/c", "docs"])
        let git = try #require(try RuleTests.rules(protect: [".git"]).place(at: Array("x/.git/hooks".utf8)))
        #expect(git.isProtected)
        let (above, inside) = (try #require(try rules.place(at: Array("a".utf8))), try #require(try rules.place(at: Array("docs/x".utf8))))
        #expect(Self.text(above.rules.protect) == [".git", "/kept"] && Self.text(above.rules.only) == ["/b/c", "docs"])
        #expect(!above.isProtected && inside.rules.only.isEmpty)
    }

    @Test("A directory outside all grants is judged by patterns of any depth alone")
    func outside() throws {
        let rules = try RuleTests.rules(hide: ["*", "!/src", "/home"], protect: ["**/.git/hooks", ".ssh"], only: ["work"])
        let place = try #require(try rules.place(outside: Array("/home/u/.git".utf8)))
        #expect(Self.text(place.rules.hide) == ["*", "!/src", "/home"] && Self.text(place.rules.only) == ["work"])
        #expect(Self.text(place.rules.protect) == ["**/.git/hooks", "/hooks", ".ssh"])
        #expect(try rules.place(outside: Array("/home/.ssh/keys".utf8))?.isProtected == true)
        #expect(try RuleTests.rules(hide: [".ssh"]).place(outside: Array("/home/.ssh/keys".utf8)) == nil)
    }

    /// Each path is judged twice: below the grant, and below the directory with its own rules.
    @Test("Rules of a directory say the same of each path as those of the grant above")
    func agreement() throws {
        var generator = SystemRandomNumberGenerator()
        let names = ["a", "b", "c", ".git"]
        let parts = names + ["*", "?", "**", "[ab]"]
        func one(of words: [String]) -> String { words.randomElement(using: &generator) ?? "" }
        func path(_ most: Int, of words: [String]) -> String {
            (0..<Int.random(in: 1...most, using: &generator)).map { _ in one(of: words) }.joined(separator: "/")
        }
        func pattern() -> String { one(of: ["", "", "!"]) + one(of: ["", "/"]) + path(3, of: parts) + one(of: ["", "/"]) }
        var compared = 0
        while compared < 20_000 {
            let lists = (0..<3).map { _ in (0..<Int.random(in: 0...3, using: &generator)).map { _ in pattern() } }
            guard let rules = try? RuleTests.rules(hide: lists[0], protect: lists[1], only: lists[2]) else { continue }
            let above = path(2, of: names)
            let place: GrantRules.Place?
            do { place = try rules.place(at: Array(above.utf8)) } catch { continue }
            for _ in 0..<8 {
                let below = path(3, of: names) + one(of: ["", "/"])
                let whole = RuleTests.judge(rules, above + "/" + below)
                // On the way to something that another pattern takes back.
                let isOnTheWay = !whole.isHidden && !lists[2].isEmpty && below.hasSuffix("/")
                guard let place else {
                    #expect(whole.isHidden || isOnTheWay, "\(lists) \(above) \(below)")
                    continue
                }
                let own = RuleTests.judge(place.rules, below)
                let isSame =
                    (own.isHidden && isOnTheWay)
                    || whole.isHidden == own.isHidden && (whole.isHidden || whole.isProtected == (own.isProtected || place.isProtected))
                #expect(isSame, "\(lists) \(above) \(below): \(place)")
                compared += 1
            }
        }
    }
}
