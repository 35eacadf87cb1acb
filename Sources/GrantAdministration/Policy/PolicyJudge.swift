import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// Decides about one user's grants by the administrator's policy.
///
/// It judges the canonical path of an open directory, together with the identity that is granted, never a path as it was given.
public struct PolicyJudge: Sendable {
    public struct Verdict: Sendable {
        public let isAllowed: Bool
        /// The location of the deciding rule: `FILE:LINE`, or nil if there is none.
        public let place: String?
        /// For people.
        public let reason: String

        /// The verdict if there is no policy.
        public static let withoutPolicy = Verdict(
            isAllowed: true, place: nil, reason: "there is no policy in \(PolicyFiles.directory): every user may grant")
    }

    public let policy: GrantPolicy
    public let user: PolicyUser
    private let table: MountTable
    /// Forbidden directories, both as written and with links resolved: a link must hide nothing.
    private let never: [(places: [Place], directory: GrantPolicy.Directory)]

    /// Returns nil if there is no policy. Throws what `PolicyFiles.read` does.
    public static func current(for uid: UInt32, probe: DirectoryProbe = .inProcess) throws(GrantError) -> PolicyJudge? {
        guard let policy = try PolicyFiles.read() else { return nil }
        return try PolicyJudge(policy, for: PolicyUser(uid: uid), probe: probe)
    }

    public init(_ policy: GrantPolicy, for user: PolicyUser, probe: DirectoryProbe = .inProcess) throws(GrantError) {
        let table = try LoopCheck.currentTable()
        (self.policy, self.user, self.table) = (policy, user, table)
        let named = policy.never.compactMap { directory in PolicyJudge.path(of: directory, user).map { (path: $0, directory: directory) } }
        let answers = named.isEmpty ? [] : probe.ask(named.map { .canonical($0.path) })
        never = zip(named, answers).map { named, answer in
            // On a filesystem that does not answer, links cannot be resolved.
            let target = if case .canonical(let path) = answer { path } else { named.path }
            return ([named.path, target].map { Place($0, in: table) }, named.directory)
        }
    }

    /// Decides about a grant of the directory or file. `path` is canonical.
    public func verdict(on path: [UInt8], view: ViewName, access: Access) -> Verdict {
        if let refused = refusal(of: path) { return refused }
        if user.uid == 0 { return Verdict(isAllowed: true, place: nil, reason: "root may grant every path that no “never” names") }
        // Why the nearest rule does not suffice.
        var near: Verdict?
        for rule in policy.rules where rule.who.contains(where: { user.isMeant(by: $0) }) {
            guard let directory = rule.directories.first(where: { holds($0, path) }) else { continue }
            let objection: String
            if !rule.names(view) {
                objection = "of \(directory.place) allows it in other views alone"
            } else if access == .readWrite, rule.access == .readOnly {
                objection = "of \(directory.place) allows it read-only alone"
            } else {
                return Verdict(isAllowed: true, place: directory.place, reason: "“\(directory.text)” is allowed")
            }
            near = near ?? Verdict(isAllowed: false, place: directory.place, reason: "“\(directory.text)” \(objection)")
        }
        return near
            ?? Verdict(
                isAllowed: false, place: nil,
                reason: "no rule of the administrator allows \(user.name.map { "“\($0)”" } ?? "user \(user.uid)") to grant it")
    }

    /// Throws `.permission` if it may not be granted, and writes that to the system's log.
    public func require(_ path: [UInt8], view: ViewName, access: Access, by actor: Actor) throws(GrantError) {
        let verdict = verdict(on: path, view: view, access: access)
        if verdict.isAllowed { return }
        PolicyJournal.refused(path, view: view, access: access, verdict, by: actor)
        throw GrantError(
            .permission, "“\(String(decoding: path, as: UTF8.self))” may not be granted to the view “\(view)”", cause: verdict.reason,
            advice: policy.flaws.first.map { "\($0.message), so that rule allows nothing: \(PolicyFiles.mending)" }
                ?? "grantfs policy explain says more")
    }

    /// Refuses forbidden directories, their contents, their parents, and directories that show them
    /// through a mount inside.
    private func refusal(of path: [UInt8]) -> Verdict? {
        let places = ReachedPlaces(table).from(path)
        for (forbidden, directory) in never {
            guard let place = places.first(where: { place in forbidden.contains { $0.meets(place) } }) else { continue }
            let how =
                place == places[0]
                ? "" : ", and the mount at \(String(decoding: place.path, as: UTF8.self)) inside it shows something of that"
            return Verdict(
                isAllowed: false, place: directory.place, reason: "“\(directory.text)” of \(directory.place) is never granted\(how)")
        }
        return nil
    }

    /// Compares paths without resolving links: a link would extend a rule beyond its author's intention.
    private func holds(_ directory: GrantPolicy.Directory, _ path: [UInt8]) -> Bool {
        guard let own = PolicyJudge.path(of: directory, user) else { return false }
        if directory.isBelowAlone, path == own { return false }
        return MountTable.path(path, isAtOrBelow: own)
    }

    private static func path(of directory: GrantPolicy.Directory, _ user: PolicyUser) -> [UInt8]? {
        directory.isInHome ? user.home.map { $0 + directory.path } : directory.path
    }
}
