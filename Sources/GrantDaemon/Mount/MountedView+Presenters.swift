import GrantStore
import GrantSystem

extension MountedView {
    /// Writes down presenters that were passed over, and those that could not do what they were asked: in the log of the store and in the system's.
    func say(_ failures: [PresenterFailure]) {
        let (store, grants) = state.withLock { ($0.store, $0.grants) }
        for failure in failures {
            let grant = grants[failure.grant]?.grant
            let path = String(decoding: failure.path, as: UTF8.self)
            let program = String(decoding: ProcessName.of(failure.peer.pid), as: UTF8.self)
            let detail = "asked to \(failure.what) at “\(path)”: \(failure.reason.rawValue)"
            say(.warning, .passedOver, "a presenter, pid \(failure.peer.pid), was passed over: \(detail)", of: grant)
            // Best effort: no claim waits for it any more, whether or not that can be written down.
            try? store.append(
                .passedOver, view: grant?.view ?? view, grant: failure.grant, name: grant?.name, detail: detail,
                by: Actor(uid: failure.peer.uid, pid: failure.peer.pid, program: program))
        }
    }
}
