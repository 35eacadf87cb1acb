import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Nothing when there is no policy, or it allows all of them; else what `PolicyFiles.read` and `PolicyJudge.require` throw. Every way by which
    /// somebody gets more than before comes by here.
    func requireAllowed(_ wishes: [(path: [UInt8], view: ViewName, access: Access)]) throws(GrantError) {
        guard !wishes.isEmpty, let judge = try judge() else { return }
        for wish in wishes { try judge.require(wish.path, view: wish.view, access: wish.access, by: actor) }
    }

    /// nil when there is no policy. Throws what `PolicyFiles.read` does.
    func judge() throws(GrantError) -> PolicyJudge? { try PolicyJudge.current(for: actor.uid, lookout: lookout) }

    /// Whether the change gives more than before, or for longer.
    func widens(_ grant: Grant, access: Access?, expires: Instant??) -> Bool {
        if access == .readWrite, grant.access == .readOnly { return true }
        guard let expires, let before = grant.expires else { return false }
        return expires.map { $0 > before } ?? true
    }

    /// Of which of the grants the policy says that they could not be granted any more, with the reason; those that are active alone. Nothing is taken
    /// away by that.
    public func forbidden(among grants: [GrantDescription]) throws(GrantError) -> [GrantID: PolicyJudge.Verdict] {
        guard let judge = try judge() else { return [:] }
        var result: [GrantID: PolicyJudge.Verdict] = [:]
        for described in grants where described.grant.state(at: GrantAdministrator.now) == .active {
            let verdict = judge.verdict(on: described.path, view: described.grant.view, access: described.grant.access)
            if !verdict.isAllowed { result[described.grant.id] = verdict }
        }
        return result
    }

    /// Where the directory or file is that a person has named: canonical, as the policy judges it; what is not there keeps its name. `.invalidDirectory` when
    /// its filesystem does not answer.
    public static func judgedPath(of named: [UInt8], lookout: Lookout = .here) throws(GrantError) -> [UInt8] {
        let shown = String(decoding: named, as: UTF8.self)
        guard case .canonical(let path) = lookout.ask([.canonical(named)])[0] else {
            throw GrantError(.invalidDirectory, "“\(shown)” cannot be looked at", cause: "its filesystem does not answer")
        }
        return path
    }
}
