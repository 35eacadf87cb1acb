import GrantControl
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// What every mount counts, oldest mount first; nil where the daemon does not answer within `timeout` seconds, or has ended and something is
    /// left of its mount. All are asked at once.
    public func metrics(view: ViewName? = nil, timeout: Double = 2) throws(GrantError) -> [(record: MountRecord, metrics: MountMetrics?)] {
        let records = try store.mounts(view: view)
        let answers = inParallel(records) { record in
            Daemons.ask(record, .metrics, of: store, deadline: Clock.deadline(seconds: timeout))
        }
        let remains = try store.remains(of: zip(records, answers).filter { $1.isDead }.map(\.0))
        return zip(records, answers).compactMap { record, answer in
            switch answer {
            case .success(.metrics(let metrics)): (record, metrics)
            case .failure(.dead): remains.contains { $0.record.id == record.id } ? (record, nil) : nil
            default: (record, nil)
            }
        }
    }
}
