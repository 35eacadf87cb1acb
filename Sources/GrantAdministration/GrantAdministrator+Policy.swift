import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Throws what `PolicyFiles.read` and `PolicyJudge.require` do, unless there is no policy or it
    /// permits all. Every change that gives more access than before comes here.
    ///
    /// `uid` is the user whose rules count. The default is the actor.
    func requireAllowed(
        _ wishes: [(path: [UInt8], view: ViewName, access: Access)], to uid: UInt32? = nil
    ) throws(GrantError) {
        guard !wishes.isEmpty, let judge = try PolicyJudge.current(for: uid ?? actor.uid, probe: probe) else { return }
        for wish in wishes { try judge.require(wish.path, view: wish.view, access: wish.access, by: actor) }
    }

    /// Returns nil if there is no policy. Throws what `PolicyFiles.read` does.
    func judge() throws(GrantError) -> PolicyJudge? { try PolicyJudge.current(for: actor.uid, probe: probe) }

    /// Whether the change gives more than before, or for longer. Throws as `RuleChange.result`.
    func widens(_ grant: Grant, access: Access?, expires: Instant??, rules: RuleChange?) throws(GrantError) -> Bool {
        if let rules, try !rules.result(of: grant).narrows(grant.rules) { return true }
        if let access, grant.isOffered || (access == .readWrite && grant.access == .readOnly) { return true }
        guard let expires, let before = grant.expires else { return false }
        return expires.map { $0 > before } ?? true
    }

    /// Returns the active grants that the policy would no longer permit, with the reasons. Nothing is revoked by that.
    public func forbidden(among grants: [GrantDescription]) throws(GrantError) -> [GrantID: PolicyJudge.Verdict] {
        guard let judge = try judge() else { return [:] }
        var result: [GrantID: PolicyJudge.Verdict] = [:]
        for described in grants where described.grant.state(at: GrantAdministrator.now) == .active {
            let verdict = judge.verdict(on: described.path, view: described.grant.view, access: described.grant.access)
            if !verdict.isAllowed { result[described.grant.id] = verdict }
        }
        return result
    }

    /// Resolves a path that a person has given, for the policy. Missing names are kept. It throws
    /// `.invalidDirectory` if the filesystem does not answer.
    public static func judgedPath(of named: [UInt8], probe: DirectoryProbe = .inProcess) throws(GrantError) -> [UInt8] {
        let shown = String(decoding: named, as: UTF8.self)
        guard case .canonical(let path) = probe.ask([.canonical(named)])[0] else {
            throw GrantError(.invalidDirectory, "“\(shown)” cannot be inspected", cause: "its filesystem does not answer")
        }
        return path
    }
}
