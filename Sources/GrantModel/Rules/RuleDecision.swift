/// What the rules of a grant say of a path that they hide or protect, and why.
public struct RuleDecision: Hashable, Sendable, CustomStringConvertible {
    public enum List: String, Sendable {
        case hide
        case protect
        case only
    }

    /// The list that decides. `only` hides what none of its patterns matches.
    public let list: List
    /// The pattern that matches, if one does.
    public let pattern: RulePattern?
    /// The part of the path that it matches. Everything below is treated the same.
    public let place: [UInt8]

    public var isHidden: Bool { list != .protect }

    /// The option that decides: `--hide “.env”`.
    public var description: String { "--\(list.rawValue)" + (pattern.map { " “\($0)”" } ?? "") }
}

extension GrantRules {
    /// Explains why a path below the granted directory is hidden or protected. Returns nil if it is neither.
    public func decision(on path: [UInt8], isDirectory: Bool) -> RuleDecision? {
        decision(on: path, isDirectory: isDirectory) { _ in false }
    }

    /// - Parameter ignoresCase: Whether the directory with this path ignores case.
    package func decision(on path: [UInt8], isDirectory: Bool, ignoresCase: (ArraySlice<UInt8>) -> Bool?) -> RuleDecision? {
        let program = RuleProgram(self)
        var (state, next) = (program.top, RuleProgram.State())
        var protection: RuleDecision?
        let names = path.split(separator: UInt8(ascii: "/"))
        for (index, name) in names.enumerated() {
            let isLast = index == names.count - 1
            let verdict = name.withUnsafeBufferPointer {
                program.judge($0, in: state, isDirectory: isDirectory || !isLast, next: &next) {
                    ignoresCase(path[..<(index > 0 ? names[index - 1].endIndex : path.startIndex)])
                }
            }
            let place = Array(path[path.startIndex..<name.endIndex])
            if verdict.isHidden {
                guard verdict.hidingPattern >= 0 else { return RuleDecision(list: .only, pattern: nil, place: place) }
                let pattern = program.patterns[Int(truncatingIfNeeded: verdict.hidingPattern)]
                return RuleDecision(list: .hide, pattern: pattern, place: place)
            }
            if protection == nil, verdict.protectingPattern >= 0 {
                let pattern = program.patterns[Int(truncatingIfNeeded: verdict.protectingPattern)]
                protection = RuleDecision(list: .protect, pattern: pattern, place: place)
            }
            swap(&state, &next)
        }
        return protection
    }

    /// Returns rules that permit what these refuse at a path, and as little else as possible. nil if there are none.
    public func permitting(_ path: [UInt8], isDirectory: Bool) -> GrantRules? {
        permitting(path, isDirectory: isDirectory) { _ in false }
    }

    /// - Parameter ignoresCase: As for `decision`.
    package func permitting(_ path: [UInt8], isDirectory: Bool, ignoresCase: (ArraySlice<UInt8>) -> Bool?) -> GrantRules? {
        guard let refusal = decision(on: path, isDirectory: isDirectory, ignoresCase: ignoresCase) else { return nil }
        var rules = self
        for _ in 0..<Self.mostExceptions {
            guard let decision = rules.decision(on: path, isDirectory: isDirectory, ignoresCase: ignoresCase), decision.list == refusal.list
            else { return rules }
            guard let changed = rules.changed(because: decision, for: path) else { return nil }
            rules = changed
        }
        return nil
    }

    private static let mostExceptions = 64

    /// Adds an exception for what decides, in place of a pattern for this path alone.
    private func changed(because decision: RuleDecision, for path: [UInt8]) -> GrantRules? {
        guard let exact = try? RulePattern(exactly: decision.place),
            let exception = try? RulePattern(exactly: decision.place, isNegated: true)
        else { return nil }
        let excepted = { (list: [RulePattern]) in list.filter { $0 != exact } + [exception] }
        switch decision.list {
        case .only:
            guard let shown = try? RulePattern(exactly: path) else { return nil }
            return try? GrantRules(hide: hide, protect: protect, only: only + [shown])
        case .hide: return try? GrantRules(hide: excepted(hide), protect: protect, only: only)
        case .protect: return try? GrantRules(hide: hide, protect: excepted(protect), only: only)
        }
    }

    /// Whether the rules may protect something below a directory.
    public func mayProtect(below path: [UInt8]) -> Bool {
        let program = RuleProgram(self)
        return program.mayProtect(below: program.judge(path: path.split(separator: UInt8(ascii: "/")), isDirectory: true).state)
    }
}
