import GrantControl
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Returns the grants of one view or of all, with their present paths. Revoked and expired
    /// grants are included only with `all`. It changes nothing.
    public func list(view: ViewName? = nil, all: Bool = false) throws(GrantError) -> [GrantDescription] {
        let now = GrantAdministrator.now
        return describe(try store.grants(view: view).filter { all || $0.state(at: now) == .active })
    }

    /// Looks the directories up. Changes nothing.
    public func describe(_ grants: [Grant]) -> [GrantDescription] {
        let held = placesHeld(of: grants)
        let answers = probe.ask(grants.map { .find($0.bookmark, heldAt: held[$0.id]) })
        let now = GrantAdministrator.now
        let isFenced = grants.contains { $0.fleetActivation != nil } && FleetLease.read(in: store.runDirectory) <= BootClock.now
        return zip(grants, answers).map { grant, answer in
            GrantDescription(grant, answer, now: now, isFenced: isFenced && grant.fleetActivation != nil)
        }
    }

    /// Returns the paths at which running mounts hold the directories. Mounts that do not answer
    /// soon are omitted.
    private func placesHeld(of grants: [Grant]) -> [GrantID: [UInt8]] {
        let views = Set(grants.map(\.view))
        let records = ((try? store.mounts()) ?? []).filter { views.contains(where: $0.shows) }
        let replies = inParallel(records) { record in
            let ids = grants.filter { record.shows($0.view) }.map(\.id)
            return Daemons.ask(record, .locate(grants: ids), of: store, deadline: Clock.deadline(seconds: 0.5))
        }
        var places: [GrantID: [UInt8]] = [:]
        for case .success(.located(let found)) in replies {
            for place in found { places[place.grant] = place.path }
        }
        return places
    }
}
