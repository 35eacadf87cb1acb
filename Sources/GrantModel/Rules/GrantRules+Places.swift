// The rules of a grant for a directory in it that gets a grant of its own.
extension GrantRules {
    /// What rules say of a directory, and the same rules as those of a grant of that directory.
    package struct Place: Sendable {
        package let isProtected: Bool
        package let rules: GrantRules
    }

    /// Returns what these rules say of a directory below the granted one.
    ///
    /// The result is nil if the directory is hidden, or everything in it.
    ///
    /// - Parameter path: Relative to the granted directory. Empty for that directory.
    /// - Throws: `.permission` if no rules say the same of that directory.
    package func place(at path: [UInt8]) throws(GrantError) -> Place? {
        try place(at: path, judgingBy: self)
    }

    /// Returns what these rules say of a directory that none of their grants contains: patterns that match at any depth are those of
    /// its whole path, and the others begin in it.
    ///
    /// - Parameter path: Absolute.
    package func place(outside path: [UInt8]) throws(GrantError) -> Place? {
        let isOfPlaces = { (pattern: RulePattern) in pattern.matchesAnywhere && !pattern.matchesAnyName }
        return try place(at: path, judgingBy: GrantRules(hide: hide.filter(isOfPlaces), protect: protect.filter(isOfPlaces)))
    }

    private func place(at path: [UInt8], judgingBy judges: GrantRules) throws(GrantError) -> Place? {
        let program = RuleProgram(judges)
        let (verdict, state) = program.judge(path: path.split(separator: UInt8(ascii: "/")), isDirectory: true)
        if verdict.isHidden { return nil }
        let rest = program.patterns(in: state)
        let judging = Set(judges.hide + judges.protect + judges.only)
        func patterns(_ own: [RulePattern]) throws(GrantError) -> [RulePattern] {
            var result: [RulePattern] = []
            for pattern in own {
                if pattern.matchesAnywhere || !judging.contains(pattern) || path.isEmpty { result.append(pattern) }
                for component in rest[pattern] ?? [] where !path.isEmpty { result.append(try pattern.rest(from: component)) }
            }
            return Self.withoutTakenBack(result)
        }
        let (hidden, protected) = (try patterns(hide), try patterns(protect))
        let visible = state.isSelected ? [] : try patterns(only)
        if hidden.last?.hidesEverything == true { return nil }
        if !only.isEmpty, !state.isSelected, visible.allSatisfy(\.isNegated) { return nil }
        do throws(GrantError) {
            return Place(isProtected: state.isProtected, rules: try GrantRules(hide: hidden, protect: protected, only: visible))
        } catch {
            throw GrantError(
                .permission, "“\(VisibleText.of(path))” cannot be granted by itself", cause: "its rules contradict each other there",
                advice: "use a directory above it")
        }
    }

    /// Leaves patterns out that a later one matches as well, with or without `!`.
    private static func withoutTakenBack(_ patterns: [RulePattern]) -> [RulePattern] {
        var seen = Set<[UInt8]>()
        return patterns.reversed().filter { seen.insert($0.bare).inserted }.reversed()
    }
}
