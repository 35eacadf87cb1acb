import GrantControl
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Reads the counters of all mounts concurrently, oldest mount first. The counters are nil for
    /// a daemon that does not answer within `timeout` seconds, or has died with something left of
    /// its mount.
    public func metrics(view: ViewName? = nil, timeout: Double = 2) throws(GrantError) -> [(record: MountRecord, metrics: MountMetrics?)] {
        let records = try store.mounts(view: view)
        let answers = inParallel(records) { record in
            Daemons.ask(record, .metrics, of: store, deadline: Clock.deadline(seconds: timeout))
        }
        let deadMounts = try store.deadMounts(
            of: zip(records, answers).filter { $1.isDead }.map(\.0), until: Clock.deadline(seconds: timeout))
        return zip(records, answers).compactMap { record, answer in
            switch answer {
            case .success(.metrics(let metrics)): (record, metrics)
            case .failure(.dead): deadMounts.contains { $0.record.id == record.id } ? (record, nil) : nil
            default: (record, nil)
            }
        }
    }
}
