import GrantAdministration
import GrantCommandSupport
import GrantModel
import GrantSystem

extension MCPGrants {
    /// Makes a grant last longer. `.notFound` if it has ended meanwhile.
    ///
    /// - Parameters:
    ///   - proposal: The directory as it was found for this request.
    ///   - access: No more than the grant has.
    ///   - expires: nil: until the session ends.
    ///   - isDecided: Whether a person has decided on this request.
    func extend(
        _ id: GrantID, _ proposal: GrantAdministrator.Proposal, _ access: Access, until expires: Instant?, isDecided: Bool
    ) throws(GrantError) -> Shown {
        InjectedFault.stop(at: "extending")
        guard let shown = try all().first(where: { $0.grant.id == id }) else {
            throw GrantError(.notFound, "the directory is not granted any more", advice: "use request_directory")
        }
        guard Self.areSame(shown.grant.bookmark, proposal.bookmark) else {
            throw GrantError(.invalidDirectory, "another directory was chosen")
        }
        // A person may have decided for less.
        let isLess = access == .readOnly && shown.grant.access == .readWrite
        let change = try administrator.setUnchanged(shown.grant, access: isLess ? access : nil, expires: .some(expires))
        try requireConfirmation(of: change)
        let extended = show(change.grant)
        try requireDecision(on: extended, isDecided)
        return extended
    }

    /// Takes part of a grant back. `.usage` for more than it has, or for nothing.
    func narrow(_ shown: Shown, _ access: Access?, _ rules: GrantRules, until expires: Instant?) throws(GrantError) -> Shown {
        let grant = shown.grant
        if access == .readWrite {
            throw GrantError(.usage, "narrow_directory gives no access", advice: "request_directory asks for it")
        }
        if let expires, let end = grant.expires, expires > end {
            throw GrantError(.usage, "it ends earlier already", advice: "extend_directory makes it longer")
        }
        if access == nil, rules.isEmpty, expires == nil {
            throw GrantError(.usage, "there is nothing to narrow", advice: "give access, duration, hide, protect or only")
        }
        InjectedFault.stop(at: "narrowing")
        let change = try administrator.setUnchanged(
            grant, access: access, expires: expires.map { .some($0) },
            rules: rules.isEmpty ? nil : RuleChange(try grant.rules.narrowed(by: rules)))
        try requireConfirmation(of: change)
        return show(change.grant)
    }

    private func requireConfirmation(of change: GrantChange) throws(GrantError) {
        guard [change].areConfirmed else {
            throw GrantError(.unconfirmed, "the change of “\(change.grant.name)” is recorded and not confirmed yet")
        }
    }

    // MARK: explaining

    /// What the session may do at a path.
    struct Explanation {
        enum Verdict: String, CaseIterable {
            case readWrite = "read-write"
            case readOnly = "read-only"
            case protected
            case hidden
            case notGranted = "not-granted"
            case denied
        }

        let verdict: Verdict
        /// The paths for the program and on the host, if a grant leads there.
        var place: [UInt8]?
        var directory: [UInt8]?
        var rule: RuleDecision?

        var text: String {
            switch verdict {
            case .readWrite: "You may read and change it at \(shownPlace)."
            case .readOnly: "You may read it at \(shownPlace). Changes fail with EROFS."
            case .protected: "You may read it at \(shownPlace). The rule \(shownRule) protects it: changes fail with EROFS."
            case .hidden: "The rule \(shownRule) hides it. Nothing seems to exist at the path."
            case .notGranted: "No grant of this session leads there. request_directory asks for one."
            case .denied: "No grant leads there, and the policy denies one."
            }
        }

        private var shownPlace: String { VisibleText.name(place ?? []) }
        private var shownRule: String { rule.map { VisibleText.of($0.description) } ?? "" }

        var json: JSON {
            .object(
                [("verdict", .string(verdict.rawValue))] + (place.map { JSON.members("path", $0) } ?? [])
                    + (directory.map { JSON.members("directory", $0) } ?? [])
                    + (rule.map { [("rule", .string($0.description))] } ?? []))
        }
    }

    /// Explains a path by the grants and rules alone. The disk is not asked, so a program learns nothing about hidden names.
    ///
    /// - Parameter path: In the session's view, or on the host. Absolute, and without `.` and `..`.
    func explanation(of path: [UInt8]) throws(GrantError) -> Explanation {
        let ways = try all().flatMap { shown in [(shown, shown.place), (shown, shown.directory)] }
            .filter { MountTable.path(path, isAtOrBelow: $0.1) }
        guard let (shown, top) = ways.max(by: { $0.1.count < $1.1.count }) else {
            return Explanation(verdict: try isDenied(path) ? .denied : .notGranted)
        }
        let below = Array(path.dropFirst(top.count).drop { $0 == 0x2F })
        let rules = shown.grant.rules
        // Whether it is a directory is not told, so what hides or protects one counts.
        let decisions = below.isEmpty ? [] : [true, false].compactMap { rules.decision(on: below, isDirectory: $0) }
        let decision = decisions.first(where: \.isHidden) ?? decisions.first
        let verdict: Explanation.Verdict =
            decision?.isHidden == true
            ? .hidden : shown.grant.access == .readOnly ? .readOnly : decision == nil ? .readWrite : .protected
        return Explanation(
            verdict: verdict, place: CanonicalPath.join(shown.place, below), directory: CanonicalPath.join(shown.directory, below),
            rule: verdict == .readOnly ? nil : decision)
    }

    private func isDenied(_ path: [UInt8]) throws(GrantError) -> Bool {
        if policy.verdict(on: path, .readOnly) == .denied { return true }
        return try place(path) == nil
    }
}
