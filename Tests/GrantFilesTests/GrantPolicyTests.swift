import GrantFiles
import GrantModel
import Testing

/// What an administrator says of grants, as it is written.
@Suite struct GrantPolicyTests {
    private func read(_ text: String) throws -> GrantPolicy {
        var policy = GrantPolicy()
        try policy.read(Array(text.utf8), file: "10-site.toml")
        return policy
    }

    @Test("A policy is read with its rules, and each has its line number")
    func reads() throws {
        let policy = try read(
            """
            never = [
              "/etc",
              "~/.ssh",
            ]
            [[allow]]
            who = ["ann", "@staff"]
            directories = ["~/*", "/srv/projects"]
            views = ["ci", "run-*"]
            access = "read-only"
            [[allow]]
            who = ["*"]
            directories = ["/*"]
            """)
        #expect(policy.never.map(\.place) == ["10-site.toml:2", "10-site.toml:3"])
        #expect(policy.never.map(\.isInHome) == [false, true] && policy.never[1].path == Array("/.ssh".utf8))
        let rule = policy.rules[0]
        #expect(rule.who == [.user("ann"), .group("staff")] && rule.access == .readOnly && rule.place == "10-site.toml:5")
        #expect(
            rule.directories.map(\.isBelowAlone) == [true, false]
                && rule.directories.map(\.place) == Array(repeating: "10-site.toml:7", count: 2))
        for (view, isNamed) in [("ci", true), ("run-12", true), ("cid", false), ("run", false)] {
            #expect(rule.names(try ViewName(view)) == isNamed, "\(view)")
        }
        let all = policy.rules[1]
        #expect(all.who == [.everybody] && all.access == .readWrite && all.names(.standard) && all.directories[0].path == [0x2F])
    }

    @Test(
        "An invalid policy is refused with the number of the line",
        arguments: [
            "\nallow = 1", "\nnever = \"/etc\"", "\nnever = [\"etc\"]", "\nnever = [\"/a/../b\"]", "\nnever = [\"/a*/b\"]",
            "\nnever = [\"~ann/x\"]",
            "\nnever = [\"/a\\u0000b\"]",
            "\nnevers = []", "\nnever = [", "\n[allow]\nwho = [\"*\"]", "\n[[allow]]\nwho = [\"*\"]",
            "\n[[allow]]\ndirectories = [\"/srv\"]",
            "\n[[allow]]\nwho = []\ndirectories = [\"/srv\"]", "\n[[allow]]\nwho = [\"@\"]\ndirectories = [\"/srv\"]",
            "\n[[allow]]\nwho = [\"a*\"]\ndirectories = [\"/srv\"]", "\n[[allow]]\nwho = \"ann\"\ndirectories = [\"/srv\"]",
            "\n[[allow]]\nwho = [\"ann\"]\ndirectories = [\"/srv\"]\nviews = [\"a/b\"]",
            "\n[[allow]]\nwho = [\"ann\"]\ndirectories = [\"/srv\"]\naccess = \"all\"",
            "\n[[allow]]\nwho = [\"ann\"]\ndirectories = [\"/srv\"]\nwhat = 1", "\n[[revoke]]\nwho = [\"ann\"]",
            "\n[[revoke]]\nviews = [\"ci\"]", "\n[[revoke]]\nwho = [\"ann\"]\nviews = [\"ci\"]\naccess = \"read-only\"",
        ])
    func nonsense(text: String) {
        let error = #expect(throws: GrantError.self) { try read(text) }
        #expect(error?.code == .invalidFile && error?.message.hasPrefix("10-site.toml:") == true, "\(String(describing: error))")
    }
}
