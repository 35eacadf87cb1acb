import GrantCommandLine
import GrantModel

// The values of the options that give patterns of names.
extension ParsedArguments {
    /// Returns the lists of patterns that were given. An empty pattern alone stands for an empty list.
    package func ruleChange() throws(GrantError) -> RuleChange {
        RuleChange(hide: try patterns("hide"), protect: try patterns("protect"), only: try patterns("only"))
    }

    /// Returns the rules that were given.
    package func rules() throws(GrantError) -> GrantRules { try ruleChange().result(of: GrantRules.none) }

    /// Returns the rules that were given, after other rules, with those of `--protect-tools`, and a check of directories that
    /// are granted for writing (`ToolProtection.requireOutside`).
    package func sandboxRules(
        after others: GrantRules = .none
    ) throws(GrantError) -> (rules: GrantRules, check: @Sendable ([UInt8]) throws(GrantError) -> Void) {
        let given = try others.followed(by: rules())
        guard has("protect-tools") else { return (given, { _ in }) }
        return (
            try ToolProtection.added(to: given), { (path) throws(GrantError) in try ToolProtection.requireOutside(path, beside: given) }
        )
    }

    private func patterns(_ option: String) throws(GrantError) -> [RulePattern]? {
        guard let words = options[option] else { return nil }
        if words == [[]] { return [] }
        var patterns: [RulePattern] = []
        for word in words { patterns.append(try RulePattern(word)) }
        return patterns
    }
}
