import GrantModel
import GrantStore
import GrantSystem

/// What a grant permits at a path, and why not more.
public struct PathExplanation: Sendable {
    public enum Verdict: String, Sendable {
        case readWrite = "read-write"
        case readOnly = "read-only"
        /// A rule refuses changes.
        case protected
        /// A rule hides it.
        case hidden
        /// The grant is not active, or only offered, or its directory is not found.
        case unavailable
    }

    public let described: GrantDescription
    /// The path below the granted directory. Empty for this directory.
    public let place: [UInt8]
    public let decision: RuleDecision?
    /// Whether it is a directory below which rules may protect something, which then cannot be renamed or removed.
    public let mayContainProtected: Bool
    /// Rules that permit what the rule refuses, and as little else as possible.
    public let permitting: GrantRules?

    public var verdict: Verdict {
        if described.state != .active || described.grant.isOffered { return .unavailable }
        if let decision { return decision.isHidden ? .hidden : described.grant.access == .readOnly ? .readOnly : .protected }
        return described.grant.access == .readOnly ? .readOnly : .readWrite
    }
}

extension GrantAdministrator {
    /// Explains what the grants that lead to a path permit there. The path need not exist.
    ///
    /// A path in a mount of this store is explained by its grant alone. Links above the path on the host are followed. The last
    /// name, and names below a granted directory, are judged as they are. No daemon is asked.
    ///
    /// - Throws: `.usage` for the directory of a view itself, `.notFound` for a name that the view does not have.
    public func explain(_ given: [UInt8], view: ViewName? = nil) throws(GrantError) -> [PathExplanation] {
        let table = try LoopCheck.currentTable()
        let isDirectory = given.last == UInt8(ascii: "/")
        if let shown = try grant(showing: CanonicalPath.plain(given), in: table) {
            return [explanation(describe([shown.grant])[0], shown.below, isDirectory: isDirectory)]
        }
        var path = CanonicalPath.plain(given)
        if case .canonical(let above) = probe.ask([.canonical(CanonicalPath.parent(of: path))])[0], path != [UInt8(ascii: "/")] {
            path = CanonicalPath.join(above, CanonicalPath.lastName(of: path))
            // A link leads into a view.
            if let shown = try grant(showing: path, in: table) {
                return [explanation(describe([shown.grant])[0], shown.below, isDirectory: isDirectory)]
            }
        }
        return describe(try store.grants(view: view)).compactMap { described in
            let top = described.path
            guard path == top || top == [UInt8(ascii: "/")] || path.starts(with: top + [UInt8(ascii: "/")]) else { return nil }
            let place = Array(path.dropFirst(top.count).drop { $0 == UInt8(ascii: "/") })
            return explanation(described, place, isDirectory: isDirectory)
        }
    }

    private func explanation(_ described: GrantDescription, _ place: [UInt8], isDirectory: Bool) -> PathExplanation {
        let rules = described.grant.rules
        var isDirectory = isDirectory
        if !isDirectory, !rules.isEmpty, !place.isEmpty, described.state == .active {
            let path = CanonicalPath.join(described.path, place)
            // The directory behind a link has another path.
            if case .bookmarked(let named) = probe.ask([.bookmark(directory: path)])[0] { isDirectory = named.bookmark.path == path }
        }
        // A file that is not reached, or not there, has the spelling that is given.
        let opened = try? rules.isEmpty || described.state != .active ? nil : FoldedTree(FileDescriptor.openWithoutLinks(described.path))
        let ignoresCase = { (above: ArraySlice<UInt8>) in opened?.folds(above) ?? false }
        let decision = place.isEmpty ? nil : rules.decision(on: place, isDirectory: isDirectory, ignoresCase: ignoresCase)
        return PathExplanation(
            described: described, place: place, decision: decision,
            mayContainProtected: isDirectory && decision == nil && !place.isEmpty && rules.mayProtect(below: place),
            permitting: decision == nil ? nil : rules.permitting(place, isDirectory: isDirectory, ignoresCase: ignoresCase))
    }
}
