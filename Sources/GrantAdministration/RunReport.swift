import GrantModel
import GrantStore
import GrantSystem

/// What a program of `grantfs run` wanted and did not get, from the log.
///
/// The program chose the names and the hosts.
package struct RunReport: Sendable {
    /// A name below the home that no grant of the run shows.
    package struct WantedName: Sendable {
        /// Canonical but for links below the home.
        package let path: [UInt8]
        package let access: OpenAccess
        package let count: Int64
    }

    /// Operations that a grant refused.
    package struct Refused: Sendable {
        package let grant: GrantName?
        /// The path of the first one, if it is known.
        package let path: [UInt8]?
        /// The rule that refused them, for people. nil: the grant was read-only then, or withdrawn.
        package let rule: String?
        package fileprivate(set) var count: Int64
    }

    /// A granted directory or file, as it was when the program began.
    package struct Granted: Sendable {
        package let name: GrantName?
        package let path: [UInt8]
        package fileprivate(set) var access: Access
        /// Whether it was only offered.
        package let isOffered: Bool
        /// Whether a person has allowed the offer for as long as the run, and has not taken it back.
        package fileprivate(set) var isAllowed = false
        /// Whether a person has made it, changed it or taken it back, or it has rules.
        package fileprivate(set) var isChanged = false
        package let hasRules: Bool
    }

    package struct Host: Sendable {
        /// `HOST:PORT`
        package let target: String
        package let reason: String
        package let count: Int64
    }

    package let view: ViewName
    package private(set) var names: [WantedName] = []
    /// The lookups of names beyond the limit.
    package private(set) var otherLookups: Int64 = 0
    package private(set) var refused: [Refused] = []
    package private(set) var hosts: [Host] = []
    /// The refused connections to hosts beyond the limit.
    package private(set) var otherHosts: Int64 = 0
    package private(set) var granted: [Granted] = []
    /// The process that made its grants, and withdraws them at its end.
    private var granting: Int32?

    package var isEmpty: Bool {
        names.isEmpty && refused.isEmpty && hosts.isEmpty && otherLookups == 0 && otherHosts == 0 && !granted.contains(where: \.isOffered)
    }

    /// Whether a word may name a run: `run-` and some hexadecimal digits.
    package static func isName(_ word: [UInt8]) -> Bool {
        let prefix = Array("run-".utf8)
        let rest = word.dropFirst(prefix.count)
        return word.starts(with: prefix) && rest.count <= 16 && rest.allSatisfy { Hexadecimal.value(of: $0) != nil }
    }

    /// Finds a run by its view or a unique beginning of that, nil for the newest run.
    ///
    /// - Throws: `.notFound`, `.ambiguous`.
    package static func find(_ word: [UInt8]?, in store: GrantStore) throws(GrantError) -> RunReport {
        let views = try store.viewsOfRuns()
        guard let word else {
            guard let newest = views.last else {
                throw GrantError(
                    .notFound, "the log has no run", advice: "grantfs run --learn … -- PROGRAM records what a program wants")
            }
            return try RunReport(of: newest, in: store)
        }
        let found = views.filter { Array($0.description.utf8).starts(with: word) }
        if found.count == 1 { return try RunReport(of: found[0], in: store) }
        let shown = VisibleText.of(word)
        if found.isEmpty {
            throw GrantError(
                .notFound, "the log has no run “\(shown)”",
                cause: views.isEmpty ? "it has none at all" : "the newest is \(views[views.count - 1])",
                advice: "grantfs log lists the runs that it still has")
        }
        throw GrantError(
            .ambiguous, "\(found.count) runs begin with “\(shown)”",
            cause: "among them \(found[found.count - 1]), which is the newest", advice: "add more of its digits")
    }

    private init(of view: ViewName, in store: GrantStore) throws(GrantError) {
        self.view = view
        let events: [LogEvent] = [.granted, .denied, .wanted, .hostRefused, .revoked, .expired, .changed]
        for entry in try store.log(of: view, events: events) { add(entry) }
        names.sort { $0.count == $1.count ? $0.path.lexicographicallyPrecedes($1.path) : $0.count > $1.count }
    }

    /// The grant of that name.
    package func granted(_ name: GrantName?) -> Granted? { granted.first { $0.name == name } }

    private mutating func add(_ entry: LogEntry) {
        let count = max(1, entry.count ?? 1)
        switch entry.event {
        case .granted:
            // Later ones are of people.
            granting = granting ?? entry.actor.pid
            let offered = "offered "
            let isOffered = entry.detail.hasPrefix(offered)
            let detail = isOffered ? String(entry.detail.dropFirst(offered.count)) : entry.detail
            guard let (path, access, hasRules) = RunReport.granted(detail) else { return }
            granted.append(
                Granted(
                    name: entry.name, path: path, access: access, isOffered: isOffered,
                    isChanged: hasRules || granting != entry.actor.pid, hasRules: hasRules))
        case .revoked, .expired, .changed:
            if entry.event == .changed, entry.detail.contains(part: "offered → allowed") {
                for index in granted.indices where granted[index].name == entry.name {
                    // Not if only for a time.
                    granted[index].isAllowed = !entry.detail.contains(part: "expires ")
                }
            }
            for index in granted.indices where granted[index].name == entry.name && granted[index].isOffered {
                if entry.detail.contains(part: "→ read-only") { granted[index].access = .readOnly }
                if entry.event != .changed, granting != entry.actor.pid { granted[index].isAllowed = false }
            }
            if granting == entry.actor.pid { return }
            for index in granted.indices where granted[index].name == entry.name { granted[index].isChanged = true }
        case .denied:
            let rule = entry.detail.utf8.place(ofPart: ", ".utf8).map { String(entry.detail[$0.upperBound...]) }
            let known = refused.firstIndex { $0.grant == entry.name && $0.path == entry.path && $0.rule == rule }
            guard let known else { return refused.append(Refused(grant: entry.name, path: entry.path, rule: rule, count: count)) }
            refused[known].count = refused[known].count.addingReportingOverflow(count).partialValue
        case .wanted:
            if let path = entry.path {
                names.append(WantedName(path: path, access: entry.access ?? .read, count: count))
            } else {
                otherLookups = otherLookups.addingReportingOverflow(count).partialValue
            }
        case .hostRefused:
            guard let colon = entry.detail.utf8.place(ofPart: ": ".utf8) else {
                otherHosts = otherHosts.addingReportingOverflow(count).partialValue
                return
            }
            hosts.append(
                Host(
                    target: String(entry.detail[..<colon.lowerBound]), reason: String(entry.detail[colon.upperBound...]), count: count))
        default: break
        }
    }

    /// Parses what the log says of a granted directory: access, path, and perhaps rules.
    private static func granted(_ detail: String) -> (path: [UInt8], access: Access, hasRules: Bool)? {
        for access in [Access.readWrite, .readOnly] where detail.hasPrefix(access.rawValue + " /") {
            let rest = detail.dropFirst(access.rawValue.count + 1)
            let rules = ["hide", "protect", "only"].compactMap { rest.utf8.place(ofPart: ", \($0) ".utf8)?.lowerBound }.min()
            // A name may look like rules, so the path may be cut.
            return (Array(rest[..<(rules ?? rest.endIndex)].utf8), access, rules != nil)
        }
        return nil
    }
}

/// Directories that stand for several wanted names.
package enum WantedDirectories {
    /// The directories in a home in which each program has one of its own.
    package static let ofPrograms = [".config", ".cache", ".local/share", ".local/state", ".var/app"].map {
        $0.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }
    }

    /// Returns the directory of a program or project that the name is in, or the name itself. By the text alone.
    ///
    /// - Parameter names: The components below the home.
    package static func group(of names: [[UInt8]]) -> [[UInt8]] {
        if let above = ofPrograms.first(where: { names.starts(with: $0) }) { return Array(names.prefix(above.count + 1)) }
        if names.first?.first == UInt8(ascii: ".") { return Array(names.prefix(1)) }
        return Array(names.prefix(2))
    }
}
