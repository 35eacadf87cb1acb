import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Gives another view what a grant is of, by the same bookmark: also when it cannot be found just now. `.invalidDirectory` where it was last seen in the store or one of its
    /// mounts, `.alreadyExists` when the name is taken there, `.permission` when the administrator's policy does not allow it.
    public func share(
        _ grant: Grant, with view: ViewName, as name: GrantName, access: Access, timeout: Double = standardTimeout
    ) throws(GrantError) -> GrantChange {
        try Placement(store: store).check(grant.bookmark.path)
        try requireAllowed([(grant.bookmark.path, view, access)])
        let shared = Grant(
            id: .random(), view: view, name: name, bookmark: grant.bookmark, access: access, created: GrantAdministrator.now)
        try store.insert([shared], by: actor)
        return try announce([shared], timeout)[0]
    }
}
