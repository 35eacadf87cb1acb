import Bookmarks
import GrantModel
import GrantStore

extension GrantAdministrator {
    /// The grants, of one view or of all, with where they are now; revoked and expired ones with `all`. Nothing is changed.
    public func list(view: ViewName? = nil, all: Bool = false) throws(GrantError) -> [GrantDescription] {
        let now = GrantAdministrator.now
        return describe(try store.grants(view: view).filter { all || $0.state(at: now) == .active })
    }

    /// Looks where the directories are. Nothing is changed.
    public func describe(_ grants: [Grant]) -> [GrantDescription] {
        let resolver = BookmarkResolver()
        let now = GrantAdministrator.now
        return grants.map { grant in
            let resolved = resolver.resolve(grant.bookmark)
            let reason = resolved.isInTrash ? "it lies in a Trash; it is back when it is taken out of there" : nil
            return GrantDescription(grant, finding: resolved.finding, path: resolved.path, reason: reason, now: now)
        }
    }
}
