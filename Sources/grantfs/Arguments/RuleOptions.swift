import GrantCommandLine
import GrantModel

/// Options that give patterns of names.
enum RuleOptions {
    static let lists = ["hide", "protect", "only"]
    /// The options, for the rules of a directory that is described.
    static func of(_ directory: String) -> [OptionDeclaration] {
        [
            OptionDeclaration("hide", value: "PATTERN", help: "names below \(directory) that do not exist there", isRepeatable: true),
            OptionDeclaration("protect", value: "PATTERN", help: "names that can be read there and not changed", isRepeatable: true),
            OptionDeclaration("only", value: "PATTERN", help: "nothing else is visible there", isRepeatable: true),
        ]
    }

    static let protectTools = OptionDeclaration(
        "protect-tools", help: "protect there what the host executes later: git hooks and configuration, start files, CI, agent settings")
    static let toolsNote =
        "--protect-tools protects these names at any depth, and --protect '!NAME' leaves one out: "
        + ToolProtection.patterns.joined().joined(separator: " ")

    static let note =
        "PATTERN is as in gitignore(5), relative to the granted directory: .env* at any depth, /config below the directory itself, "
        + "build/ for directories, ! takes back. Quote it for the shell. See Rules in grantfs(1)."
}

extension ParsedArguments {
    /// Returns the lists of patterns that were given. An empty pattern alone stands for an empty list.
    func ruleChange() throws(GrantError) -> RuleChange {
        RuleChange(hide: try patterns("hide"), protect: try patterns("protect"), only: try patterns("only"))
    }

    /// Returns the rules that were given.
    func rules() throws(GrantError) -> GrantRules { try ruleChange().result(of: GrantRules.none) }

    /// Returns the rules that were given, with those of `--protect-tools`.
    func sandboxRules() throws(GrantError) -> GrantRules {
        let given = try rules()
        return has("protect-tools") ? try ToolProtection.added(to: given) : given
    }

    private func patterns(_ option: String) throws(GrantError) -> [RulePattern]? {
        guard let words = options[option] else { return nil }
        if words == [[]] { return [] }
        var patterns: [RulePattern] = []
        for word in words { patterns.append(try RulePattern(word)) }
        return patterns
    }

    /// Throws `.unsupported` for rules of the fleet's grants.
    func refuseFleetRules() throws(GrantError) {
        guard let option = (RuleOptions.lists + ["no-rules"]).first(where: { has($0) }) else { return }
        throw GrantError(
            .unsupported, "\(command): --\(option) is not supported for grants of the fleet yet",
            advice: "grant it on each host, or leave --\(option) out")
    }
}
