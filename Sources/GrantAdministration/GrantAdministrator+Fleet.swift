import GrantBookmarks
import GrantModel
import GrantStore
import GrantSystem

// What the agent of a host does for the fleet, by the same functions as the commands.
extension GrantAdministrator {
    /// Throws `.permission` if one of the grants belongs to the fleet: on this host those can only
    /// be revoked.
    func requireOwn(_ grants: [Grant], _ verb: String) throws(GrantError) {
        guard let grant = grants.first(where: { $0.fleetActivation != nil }) else { return }
        throw GrantError(
            .permission, "“\(grant.name)” is not \(verb)", cause: "the fleet has granted it",
            advice: "an administrator of the fleet does it with --fleet")
    }

    /// Bookmarks a directory that the fleet wants to grant here, if this host's policy permits it. Writes nothing.
    public func bookmark(ofFleetDirectory path: String, view: ViewName, access: Access) -> Result<Bookmark, GrantError> {
        do throws(GrantError) {
            let proposal = try Self.propose(directory: Array(path.utf8), name: nil, store: store.directory, probe: probe)
            guard proposal.bookmark.path == Array(path.utf8) else {
                throw GrantError(.invalidDirectory, "“\(path)” cannot be granted", cause: "a link leads from there to somewhere else")
            }
            try check(proposal)
            try requireAllowed([(proposal.bookmark.path, view, access)])
            try ObeyedFiles.check(proposal.bookmark.path, access: access)
            return .success(proposal.bookmark)
        } catch {
            return .failure(error)
        }
    }

    /// Tells every mount of the grants' views to apply the store's state, and waits until they have.
    public func confirm(_ grants: [Grant], timeout: Double) throws(GrantError) -> [GrantChange] {
        grants.isEmpty ? [] : try broadcast(grants, timeout, withdraws: true)
    }
}
