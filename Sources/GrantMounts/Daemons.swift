import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Sends requests to recorded mounts.
package enum Daemons {
    package enum Failure: Error {
        /// The process has ended.
        case dead
        case unresponsive(String)
    }

    /// As below, and retries with the daemon that has taken the mount over, if that happens meanwhile: it is recorded before the old
    /// one ends.
    package static func ask(_ record: MountRecord, _ request: ControlRequest, of store: GrantStore, deadline: Int64) -> Result<
        ControlReply, Failure
    > {
        var record = record
        while true {
            let answer = ask(record, request, in: store.runDirectory, deadline: deadline)
            guard answer.isDead, let now = try? store.mounts().first(where: { $0.id == record.id }), now.process != record.process else {
                return answer
            }
            record = now
        }
    }

    /// Asks until there is an answer, the daemon is known to be dead, or `deadline` (`Clock.monotonic`) has passed. It retries while a
    /// live daemon does not listen yet.
    ///
    /// The process table alone is not enough: from another PID namespace a live daemon has no pid.
    /// A daemon counts as dead if it is in no process table and no process listens at its socket.
    /// It also counts as dead if this process table shows it as defunct, even with its socket still
    /// open.
    package static func ask(
        _ record: MountRecord, _ request: ControlRequest, in directory: String, deadline: Int64
    ) -> Result<ControlReply, Failure> {
        var hungUp = 0
        if record.isDefunct(in: directory) { return .failure(.dead) }
        let silence = { (reason: String) -> Failure in record.isDefunct(in: directory) ? .dead : .unresponsive(reason) }
        while true {
            do {
                return .success(
                    try ControlClient.ask(request, socket: record.socket, directory: directory, deadline: deadline))
            } catch {
                switch error {
                case .absent:
                    if !record.isServed(in: directory) { return .failure(.dead) }
                case .hungUp:
                    // It has ended, or is about to. A daemon that hangs up more than 20 times
                    // counts as unresponsive.
                    hungUp += 1
                    if hungUp > 20 && record.isServed(in: directory) { return .failure(.unresponsive(error.description)) }
                case .timedOut, .stranger, .nonsense, .system:
                    return .failure(silence(error.description))
                }
                if Clock.monotonic >= deadline { return .failure(silence(error.description)) }
                usleep(10_000)
            }
        }
    }
}

extension Result where Success == ControlReply, Failure == Daemons.Failure {
    package var isDead: Bool {
        if case .failure(.dead) = self { return true }
        return false
    }
}
