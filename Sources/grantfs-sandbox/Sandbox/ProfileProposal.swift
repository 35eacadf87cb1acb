import Glibc
import GrantAdministration
import GrantModel
import GrantProxy
import GrantSystem

/// A profile for `run --tool`, with the files and hosts that a program wanted and did not get.
///
/// The program chose the names and hosts. So a profile grants by itself only places that are known to be harmless for reading, and offers
/// that a person has allowed. Others are proposed in comments, from which a person makes lines. Known dangers are not proposed.
struct ProfileProposal {
    /// The largest number of grants. Each is a mount.
    private static let mostGrants = 64
    /// So many files in a directory that belongs to no program stand for the directory.
    private static let fewFiles = 4
    private static let mostComments = 100

    private struct Grant {
        var access = Access.readOnly
        var count: Int64 = 0
        /// Whether it is a place that is known to be harmless for reading.
        var isPublic = false
        /// What a person has allowed there.
        var allowed: Access?

        /// Whether it needs no decision of a person.
        var isDecided: Bool { access == .readOnly ? isPublic || allowed != nil : allowed == .readWrite }
    }

    private let home = HomeFiles()
    private let report: RunReport
    private let administrator: GrantAdministrator
    /// The program that judges what the host executes.
    private let protection: RuleProgram
    /// By components below the home.
    private var grants: [[[UInt8]]: Grant] = [:]
    private var hosts: [(target: String, count: Int64)] = []
    /// Each with the components below the home of its file.
    private var comments: [(names: [[UInt8]]?, text: String)] = []

    var isEmpty: Bool { grants.isEmpty && hosts.isEmpty }

    init(_ report: RunReport, _ administrator: GrantAdministrator) throws(GrantError) {
        (self.report, self.administrator) = (report, administrator)
        protection = RuleProgram(try ToolProtection.added(to: .none))
        for name in report.names { add(name) }
        for granted in report.granted where granted.isOffered { add(offered: granted) }
        for refused in report.refused { add(refused) }
        for host in report.hosts { add(host) }
        coarsen()
        dropInner()
        limit()
        let others = report.otherLookups &+ report.otherHosts
        if others > 0 { comments.append((nil, "\(others) uses of other names and hosts, which were only counted")) }
    }

    // MARK: - Names

    private mutating func add(_ name: RunReport.WantedName) {
        guard let names = home.names(of: name.path) else { return refuse(name.path, name.count, "it is not below the home") }
        if name.access != .read { return addForWriting(names, name) }
        switch place(of: names) {
        case .success(let place):
            grants[place, default: Grant()].count += name.count
            if isPublic(place) { grants[place]?.isPublic = true }
        case .failure(let refusal): refuse(name.path, name.count, refusal.reason)
        }
    }

    /// Programs and libraries that the person has installed, and fonts.
    private static let publicPlaces = [
        ".rustup", ".cargo/bin", ".cargo/registry", ".nvm/versions", ".pyenv/versions", ".rbenv/versions", ".sdkman/candidates",
        ".local/lib", ".local/share/fonts", ".local/share/man", ".fonts", ".config/fontconfig",
    ].map { $0.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) } }

    private func isPublic(_ names: [[UInt8]]) -> Bool { ProfileProposal.publicPlaces.contains { $0 == names } }

    private mutating func addForWriting(_ names: [[UInt8]], _ name: RunReport.WantedName) {
        let isProtected = protection.judge(path: names.map { $0[...] }, isDirectory: false).verdict.isProtected
        let found = isProtected ? .failure(Refusal(reason: Refusal.executed)) : writable(names)
        switch found {
        case .success(let place):
            grants[place, default: Grant()].count += name.count
            grants[place]?.access = .readWrite
        case .failure(let refusal):
            refuse(name.path, name.count, "for writing: " + refusal.reason)
            if name.access == .readWrite, case .success(let place) = place(of: names) {
                grants[place, default: Grant()].count += name.count
            }
        }
    }

    private struct Refusal: Error {
        let reason: String

        static let missing = Refusal(reason: "it does not exist: make it, or its directory, and run the program again")
        static let executed = "the host executes it, or takes commands from it"
        static let shared = Refusal(reason: "it holds files of many programs")
        static let whole = Refusal(reason: "it is a directory of yours as a whole: --grant DIR:ro shows it")
    }

    /// Returns the directory or file to show for reading, by its components below the home.
    private func place(of names: [[UInt8]]) -> Result<[[UInt8]], Refusal> {
        if let reason = PrivateNames.reason(names) { return .failure(Refusal(reason: reason)) }
        if let place = ProfileProposal.publicPlaces.first(where: { names.starts(with: $0) }), canBeShown(place) { return .success(place) }
        if let directory = directoryOfProgram(names) { return .success(directory) }
        if isShared(names) { return .failure(.shared) }
        switch home.find(names) {
        case .missing: return .failure(.missing)
        case .other(let reason): return .failure(Refusal(reason: reason))
        case .directory: return .failure(.whole)
        case .file: break
        }
        do throws(GrantError) {
            try administrator.checkShown(path(of: names))
            return .success(names)
        } catch {
            return .failure(Refusal(reason: error.cause ?? error.message))
        }
    }

    /// Returns the directory to show for writing.
    private func writable(_ names: [[UInt8]]) -> Result<[[UInt8]], Refusal> {
        if let reason = PrivateNames.reason(names) { return .failure(Refusal(reason: reason)) }
        var directory = directoryOfProgram(names)
        if directory == nil, isShared(names) { return .failure(.shared) }
        if directory == nil {
            // A file is replaced in its directory, or made there. A directory directly in the home is too much.
            let above = Array(names.dropLast())
            if above.count >= 2, !isShared(above), canBeShown(above) { directory = above }
        }
        guard let directory else {
            if case .missing = home.find(names) { return .failure(.missing) }
            return .failure(Refusal(reason: "it lies in no directory of a program"))
        }
        if let reason = obstacleToWriting(directory) { return .failure(Refusal(reason: reason)) }
        return .success(directory)
    }

    private func obstacleToWriting(_ names: [[UInt8]]) -> String? {
        let judged = protection.judge(path: names.map { $0[...] }, isDirectory: true)
        if judged.verdict.isProtected || judged.state.isProtected || !judged.state.positions.isEmpty { return Refusal.executed }
        do throws(GrantError) {
            try ObeyedFiles.check(path(of: names), access: .readWrite)
            return nil
        } catch {
            return error.cause ?? error.message
        }
    }

    /// The outermost directory of one program that holds the name and exists, and below which no list has a private name.
    private func directoryOfProgram(_ names: [[UInt8]]) -> [[UInt8]]? {
        let above = WantedDirectories.ofPrograms.first { names.starts(with: $0) }?.count ?? 0
        guard above > 0 || names[0].first == UInt8(ascii: "."), names.count > above else { return nil }
        for length in above + 1...names.count {
            let directory = Array(names.prefix(length))
            if !isShared(directory), canBeShown(directory) { return directory }
        }
        return nil
    }

    /// Whether it is a directory that can be shown as a whole. It is not read: the person has to look.
    private func canBeShown(_ names: [[UInt8]]) -> Bool {
        guard case .directory = home.find(names), !PrivateNames.areBelow(names) else { return false }
        let path = path(of: names)
        // No place of a sandbox lies in another one.
        if report.granted.contains(where: { MountTable.path($0.path, isAtOrBelow: path) }) { return false }
        return (try? administrator.checkShown(path)) != nil
    }

    /// Whether many programs have directories in it.
    private func isShared(_ names: [[UInt8]]) -> Bool { WantedDirectories.ofPrograms.contains { $0.starts(with: names) } }

    private func path(of names: [[UInt8]]) -> [UInt8] { names.reduce(home.path) { CanonicalPath.join($0, $1) } }

    // MARK: - Offers

    private mutating func add(offered granted: RunReport.Granted) {
        guard granted.isAllowed else { return refuse(granted.path, 1, "it was offered, and not allowed for the whole run") }
        guard let names = home.names(of: granted.path), !granted.hasRules else {
            return refuse(granted.path, 1, "it was allowed, and has rules or is not below the home: --offer or --grant shows it")
        }
        let reason = PrivateNames.reason(names) ?? (PrivateNames.areBelow(names) || isShared(names) ? Refusal.shared.reason : nil)
        guard reason == nil, case .directory = home.find(names) else {
            return refuse(granted.path, 1, reason ?? "it is not a directory any more")
        }
        let obstacle = granted.access == .readWrite ? obstacleToWriting(names) : nil
        if let obstacle { refuse(granted.path, 1, "for writing: " + obstacle) }
        grants[names, default: Grant()].count += 1
        let access = obstacle == nil ? granted.access : .readOnly
        grants[names]?.allowed = access
        if access == .readWrite { grants[names]?.access = .readWrite }
    }

    // MARK: - Refusals in grants

    private mutating func add(_ refused: RunReport.Refused) {
        let granted = report.granted(refused.grant)
        let shown = refused.path ?? granted?.path ?? refused.grant?.bytes ?? []
        if let rule = refused.rule { return refuse(shown, refused.count, rule) }
        if granted?.isOffered == true { return }
        guard let granted, granted.access == .readOnly, !granted.isChanged else {
            return refuse(shown, refused.count, "its grant has rules, or was withdrawn or changed")
        }
        guard let names = home.names(of: granted.path) else {
            return refuse(shown, refused.count, "for writing: it is not below the home, --grant without :ro grants it")
        }
        let isWhole = names.count < 2 && names[0].first != UInt8(ascii: ".")
        let reason =
            PrivateNames.reason(names)
            ?? (PrivateNames.areBelow(names) || isShared(names) ? Refusal.shared.reason : isWhole ? Refusal.whole.reason : nil)
        guard case .directory = home.find(names) else { return refuse(shown, refused.count, "for writing: it is not a directory") }
        if let reason = reason ?? obstacleToWriting(names) { return refuse(shown, refused.count, "for writing: " + reason) }
        grants[names, default: Grant()].count += refused.count
        grants[names]?.access = .readWrite
        comments.append((nil, "in place of --grant \(VisibleText.of(granted.path)):ro"))
    }

    // MARK: - Hosts

    private mutating func add(_ host: RunReport.Host) {
        // `*` and `!` would be patterns.
        let parts = host.target.split(separator: ":", omittingEmptySubsequences: false)
        let isName =
            parts.count == 2 && UInt16(parts[1]) != nil && host.target.utf8.count < 256 && ProfileProposal.isPublic(parts[0])
            && parts[0].utf8.allSatisfy { Bytes.isHostName($0) } && parts[0].split(separator: ".").last?.first?.isLetter == true
        let reason =
            if host.reason != "it is not on the list" {
                host.reason
            } else if !isName || (try? HostRule(host.target)) == nil {
                "it is not the name of another host"
            } else { nil as String? }
        if let reason {
            let target = VisibleText.cut(VisibleText.of(host.target), to: 300)
            comments.append((nil, "not proposed: \(target) (\(ProfileProposal.uses(host.count))): \(VisibleText.of(reason))"))
        } else {
            hosts.append((host.target, host.count))
        }
    }

    /// Whether it looks like the name of a host of the internet. The proxy refuses private addresses in any case.
    private static func isPublic(_ name: Substring) -> Bool {
        let last = name.split(separator: ".").last?.lowercased() ?? ""
        let local = ["localhost", "local", "lan", "internal", "intranet", "home", "corp", "private", "arpa", "test", "localdomain"]
        return name.contains(".") && !local.contains(last)
    }

    // MARK: - All of them

    /// Replaces many files in a directory that belongs to no program by the directory.
    private mutating func coarsen() {
        var groups: [[[UInt8]]: [[[UInt8]]]] = [:]
        for names in grants.keys where names[0].first != UInt8(ascii: ".") && names.count > 2 {
            groups[WantedDirectories.group(of: names), default: []].append(names)
        }
        for group in groups.values where group.count >= ProfileProposal.fewFiles {
            guard group.allSatisfy({ grants[$0]?.access == .readOnly }) else { continue }
            var common = Array(group[0].dropLast())
            for names in group { while !names.starts(with: common) { common.removeLast() } }
            guard common.count >= 2, canBeShown(common) else { continue }
            var whole = Grant()
            for names in group { whole.count += grants.removeValue(forKey: names)?.count ?? 0 }
            grants[common] = whole
        }
    }

    /// Removes grants in other proposed directories: no place of a sandbox lies in another one.
    private mutating func dropInner() {
        for names in grants.keys.sorted(by: { $0.count < $1.count }) {
            guard let grant = grants[names] else { continue }
            let outer = (1..<names.count).lazy.map { Array(names.prefix($0)) }.first { grants[$0] != nil }
            guard let outer, let around = grants[outer] else { continue }
            grants[names] = nil
            grants[outer]?.count += grant.count
            if grant.access == .readWrite, around.access == .readOnly {
                refuse(path(of: names), grant.count, "for writing: it lies in a directory that is proposed for reading")
            }
        }
    }

    private mutating func limit() {
        let sorted = grants.sorted { $0.value.count == $1.value.count ? $0.key.count < $1.key.count : $0.value.count > $1.value.count }
        for (names, grant) in sorted.dropFirst(ProfileProposal.mostGrants) {
            grants[names] = nil
            refuse(path(of: names), grant.count, "there are \(ProfileProposal.mostGrants) grants already")
        }
        for (names, grant) in grants where ProfileText.quoted(shown(path(of: names))) == nil {
            grants[names] = nil
            refuse(path(of: names), grant.count, "a profile cannot have a name with such characters")
        }
    }

    private mutating func refuse(_ path: [UInt8], _ count: Int64, _ reason: String) {
        let name = VisibleText.cut(VisibleText.of(shown(path)), to: 300)
        comments.append((home.names(of: path), "not proposed: \(name) (\(ProfileProposal.uses(count))): \(VisibleText.of(reason))"))
    }

    private func shown(_ path: [UInt8]) -> [UInt8] {
        home.names(of: path) == nil ? path : [UInt8(ascii: "~")] + path.dropFirst(home.path.count)
    }

    private static func uses(_ count: Int64) -> String { count == 1 ? "1 use" : "\(count) uses" }

    private static func lines(_ path: [UInt8], _ grant: Grant) -> [String] {
        guard let quoted = ProfileText.quoted(path) else { return [] }
        return [
            "[[grant]]  # \(uses(grant.count))", "path = \(quoted)", "access = \"\(grant.access.rawValue)\"", "optional = true",
            "links = false",
        ]
    }

    /// The profile.
    var text: String {
        var lines = [
            "# What \(report.view) wanted and did not get. The program chose the names: read this before you use it.",
            "# As ~/.config/grantfs/profiles/NAME it is for grantfs run --protect-tools --tool NAME.",
        ]
        if !hosts.isEmpty {
            lines += ["", "network = ["] + hosts.map { "    \"\($0.target)\",  # \(ProfileProposal.uses($0.count))" } + ["]"]
        }
        let sorted = grants.map { (shown(path(of: $0.key)), $0.value) }.sorted { $0.0.lexicographicallyPrecedes($1.0) }
        for (path, grant) in sorted where grant.isDecided { lines += [""] + ProfileProposal.lines(path, grant) }
        for (access, title) in [
            (Access.readOnly, "# Remove “# ” from the lines of what it may read. Look first for keys and other secrets in there."),
            (.readWrite, "# The same for what it may change. Look first whether this machine executes or obeys something in there."),
        ] {
            let open = sorted.filter { !$0.1.isDecided && $0.1.access == access }
            if !open.isEmpty { lines += ["", title] }
            for (path, grant) in open { lines += ["#"] + ProfileProposal.lines(path, grant).map { "# " + $0 } }
        }
        // The directories above a grant are in the sandbox as well.
        let comments = comments.filter { comment in
            comment.names.map { names in !grants.keys.contains { $0.count > names.count && $0.starts(with: names) } } ?? true
        }
        if !comments.isEmpty { lines.append("") }
        lines += comments.prefix(ProfileProposal.mostComments).map { "# " + $0.text }
        if comments.count > ProfileProposal.mostComments { lines.append("# and \(comments.count - ProfileProposal.mostComments) more") }
        return lines.joined(separator: "\n") + "\n"
    }
}

/// Text of a profile.
enum ProfileText {
    /// A basic string of TOML, or nil for bytes that are not UTF-8 or would not be visible.
    static func quoted(_ bytes: [UInt8]) -> String? {
        guard let text = String(validating: bytes, as: UTF8.self), text.unicodeScalars.allSatisfy({ VisibleText.isPlain($0) }) else {
            return nil
        }
        let escaped = text.unicodeScalars.map { ["\"", "\\"].contains($0) ? "\\\($0)" : String($0) }
        return "\"\(escaped.joined())\""
    }
}

extension Bytes {
    /// Whether a byte may be in the name of a host.
    fileprivate static func isHostName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "-"), UInt8(ascii: "."):
            true
        default: false
        }
    }
}
