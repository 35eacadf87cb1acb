import Control
import GrantModel
import GrantStore
import LinuxFS

extension GrantAdministrator {
    /// What every live mount counts, oldest mount first; nil where the daemon does not answer within `timeout` seconds. All are asked at once.
    public func metrics(view: ViewName? = nil, timeout: Double = 2) throws(GrantError) -> [(record: MountRecord, metrics: MountMetrics?)] {
        let records = try store.mounts(view: view)
        let directory = store.runDirectory
        let answers = inParallel(records) { record in
            Daemons.ask(record, .metrics, in: directory, deadline: Clock.deadline(seconds: timeout))
        }
        return zip(records, answers).compactMap { record, answer in
            switch answer {
            case .success(.metrics(let metrics)): (record, metrics)
            case .failure(.dead): nil
            default: (record, nil)
            }
        }
    }
}
