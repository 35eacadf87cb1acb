import GrantBookmarks
import GrantModel
import GrantStore
import GrantSystem

// What an agent does on its host for the fleet, by the same ways as the commands.
extension GrantAdministrator {
    /// `.permission` when one of the grants is the fleet's: here they can be withdrawn, and nothing else.
    func requireOwn(_ grants: [Grant], _ verb: String) throws(GrantError) {
        guard let grant = grants.first(where: { $0.fleetActivation != nil }) else { return }
        throw GrantError(
            .permission, "“\(grant.name)” is not \(verb)", cause: "the fleet has granted it",
            advice: "an administrator of the fleet does it with --fleet")
    }

    /// The bookmark of a directory that the fleet wants to grant here, if the policy of this host's administrator allows it; nothing is written.
    public func bookmark(ofFleetDirectory path: String, view: ViewName, access: Access) -> Result<Bookmark, GrantError> {
        do throws(GrantError) {
            let proposal = try Self.propose(directory: Array(path.utf8), name: nil, store: store.directory, lookout: lookout)
            guard proposal.bookmark.path == Array(path.utf8) else {
                throw GrantError(.invalidDirectory, "“\(path)” cannot be granted", cause: "a link leads from there to somewhere else")
            }
            try check(proposal)
            try requireAllowed([(proposal.bookmark.path, view, access)])
            return .success(proposal.bookmark)
        } catch {
            return .failure(error)
        }
    }

    /// Tells every mount of these grants' views what the store says, and waits until it is so there.
    public func confirm(_ grants: [Grant], timeout: Double) throws(GrantError) -> [GrantChange] {
        grants.isEmpty ? [] : try announce(grants, timeout, withdraws: true)
    }
}
