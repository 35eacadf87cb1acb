/// New lists of a grant's rules. A list that is nil keeps its patterns.
public struct RuleChange: Hashable, Sendable {
    public var hide: [RulePattern]?
    public var protect: [RulePattern]?
    public var only: [RulePattern]?

    public init(hide: [RulePattern]? = nil, protect: [RulePattern]? = nil, only: [RulePattern]? = nil) {
        (self.hide, self.protect, self.only) = (hide, protect, only)
    }

    /// Replaces all three lists.
    public init(_ rules: GrantRules) { self.init(hide: rules.hide, protect: rules.protect, only: rules.only) }

    public var isEmpty: Bool { hide == nil && protect == nil && only == nil }

    /// Returns the rules that it makes of others.
    ///
    /// - Throws: `.usage` as `GrantRules.init`.
    public func result(of rules: GrantRules) throws(GrantError) -> GrantRules {
        try GrantRules(hide: hide ?? rules.hide, protect: protect ?? rules.protect, only: only ?? rules.only)
    }

    /// Returns the rules that it gives a grant.
    ///
    /// - Throws: `.usage` as `GrantRules.init`, and if the grant cannot have rules.
    public func result(of grant: Grant) throws(GrantError) -> GrantRules {
        let rules = try result(of: grant.rules)
        try rules.requireDirectory(grant.bookmark)
        return rules
    }
}

extension RulePattern {
    /// Parses a pattern.
    ///
    /// - Throws: `.usage` if it can never match, or if gitignore(5) takes it for a comment.
    public init(_ text: String) throws(GrantError) { try self.init(Array(text.utf8)) }
}

extension GrantRules {
    /// Throws `.usage` if there are rules and the bookmark is one of a file.
    public func requireDirectory(_ bookmark: Bookmark) throws(GrantError) {
        if isEmpty || bookmark.document == nil { return }
        throw GrantError(
            .usage, "“\(VisibleText.of(bookmark.path))” is a file, and rules are for directories",
            advice: "leave --hide, --protect and --only out, or grant its directory with --only NAME")
    }

    /// The lists, with the names that commands, files and JSON use.
    package var lists: [(name: String, patterns: [RulePattern])] { [("hide", hide), ("protect", protect), ("only", only)] }

    /// How many patterns there are in each list, for people.
    package var counts: String {
        let counts = lists.filter { !$0.patterns.isEmpty }.map { "\($0.name) \($0.patterns.count)" }
        return counts.isEmpty ? "none" : counts.joined(separator: ", ")
    }

    /// The lists that are not empty, for people.
    package var lines: [(name: String, patterns: String)] {
        lists.filter { !$0.patterns.isEmpty }.map { ($0.name, Self.text($0.patterns)) }
    }

    /// Describes the lists that differ, for people: `hide .env → .env, *.key`.
    package func differences(to new: GrantRules) -> [String] {
        zip(lists, new.lists).filter { $0.patterns != $1.patterns }.map { old, new in
            "\(old.name) \(Self.text(old.patterns)) → \(Self.text(new.patterns))"
        }
    }

    private static func text(_ patterns: [RulePattern]) -> String {
        if patterns.isEmpty { return "nothing" }
        var text = ""
        for (index, pattern) in patterns.enumerated() {
            if text.unicodeScalars.count > 500 { return text + ", and \(patterns.count - index) more" }
            text += (index == 0 ? "" : ", ") + VisibleText.cut(pattern.description, to: 500)
        }
        return text
    }

    /// Whether no name can become visible or changeable when these rules replace others.
    ///
    /// May be false for rules that narrow in another way than by more patterns.
    package func narrows(_ old: GrantRules) -> Bool {
        Self.adds(to: old.hide, hide, isNegated: false) && Self.adds(to: old.protect, protect, isNegated: false)
            && (old.only.isEmpty || Self.adds(to: old.only, only, isNegated: true))
    }

    /// Whether `new` is `old` with more patterns, which all begin with `!` or all do not.
    private static func adds(to old: [RulePattern], _ new: [RulePattern], isNegated: Bool) -> Bool {
        var rest = old[...]
        for pattern in new {
            if pattern == rest.first {
                rest = rest.dropFirst()
            } else if pattern.isNegated != isNegated {
                return false
            }
        }
        return rest.isEmpty
    }
}
