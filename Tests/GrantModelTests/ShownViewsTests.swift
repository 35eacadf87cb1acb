import GrantModel
import Testing

@Suite struct ShownViewsTests {
    @Test(
        "A view pattern matches like a shell pattern",
        arguments: [
            ("*", ["", "a", "app:x"], [] as [String]), ("app:*", ["app:", "app:org.x"], ["ap", "xapp:"]),
            ("job-?", ["job-1", "job-ü"], ["job-", "job-12"]),
            ("a*b*c", ["abc", "aXbYbZc", "aabbcc"], ["ab", "acb", "abcd"]), ("a[b]", ["a[b]"], ["ab"]), ("**a", ["a", "ba"], ["ab"]),
        ])
    func pattern(_ text: String, _ matching: [String], _ others: [String]) throws {
        let pattern = try ViewPattern(text)
        for name in matching where !name.isEmpty { #expect(pattern.matches(try ViewName(name)), "\(name)") }
        for name in others { #expect(!pattern.matches(try ViewName(name)), "\(name)") }
    }

    @Test("The time of a pattern match does not grow with its number of stars")
    func stars() throws {
        let pattern = try ViewPattern(String(repeating: "*a", count: 100) + "b")
        #expect(!pattern.matches(try ViewName(String(repeating: "a", count: 250))))
    }

    @Test("A recorded view or pattern is read back unchanged")
    func recorded() throws {
        for shown in [ShownViews.one(try ViewName("a*")), .matching(try ViewPattern("a*")), .documents, .one(try ViewName("documents"))] {
            #expect(ShownViews(recorded: shown.recorded) == shown)
        }
        #expect(ShownViews(recorded: "") == nil && ShownViews(recorded: "/") == nil && ShownViews(recorded: "/a/b") == nil)
        #expect((try? ViewName("/a*")) == nil)
    }
}
