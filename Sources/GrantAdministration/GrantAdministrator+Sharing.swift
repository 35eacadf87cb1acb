import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Grants another view the same directory, by the same bookmark, even if it cannot be found
    /// now. Throws `.invalidDirectory` if its last path is in the store or one of its mounts,
    /// `.alreadyExists` if the name is taken, `.permission` if the administrator's policy denies
    /// it.
    public func share(
        _ grant: Grant, with view: ViewName, as name: GrantName, access: Access, timeout: Double = standardTimeout
    ) throws(GrantError) -> GrantChange {
        try LoopCheck(store: store).check(grant.bookmark.path)
        try requireAllowed([(grant.bookmark.path, view, access)])
        try ObeyedFiles.check(grant.bookmark.path, access: access)
        let shared = Grant(
            id: .random(), view: view, name: name, bookmark: grant.bookmark, access: access, created: GrantAdministrator.now)
        try store.insert([shared], by: actor)
        return try broadcast([shared], timeout)[0]
    }
}
