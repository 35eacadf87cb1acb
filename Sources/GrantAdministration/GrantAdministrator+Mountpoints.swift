import GrantControl
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Returns the mountpoints of live mounts that show the grant now, oldest mount first. Each was confirmed by its daemon, within so
    /// many seconds, and is a mount of the grant's view in this process's mount namespace.
    public func mountpoints(showing grant: Grant, within seconds: Double) throws(GrantError) -> [[UInt8]] {
        let records = try store.mounts(view: grant.view)
        let replies = inParallel(records) { record in
            Daemons.ask(record, .locate(grants: [grant.id]), of: store, deadline: Clock.deadline(seconds: seconds))
        }
        let table = try LoopCheck.currentTable()
        return zip(records, replies).compactMap { record, reply in
            guard case .success(.located(let places)) = reply, places.contains(where: { $0.grant == grant.id }),
                let entry = record.entry(in: table), entry.source == Array(record.view.description.utf8)
            else { return nil }
            return record.mountpoint
        }
    }
}
