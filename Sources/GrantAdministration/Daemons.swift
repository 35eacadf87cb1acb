import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Asks recorded mounts.
enum Daemons {
    enum Failure: Error {
        /// The process has ended.
        case dead
        case silent(String)
    }

    /// As below, and asks the daemon that has taken the mount over, should that happen meanwhile: it is on record before the old one ends.
    static func ask(_ record: MountRecord, _ request: ControlRequest, of store: GrantStore, deadline: Int64) -> Result<
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

    /// Asks until there is an answer, the daemon is seen to be dead, or `deadline` (`Clock.monotonic`) has passed. A daemon
    /// that lives and does not listen yet is asked again.
    ///
    /// The process table alone is not believed: from within another PID namespace a living daemon has no number. One counts
    /// as dead when it is in no process table and nobody listens at its socket either; or when it is in this one and known to serve nobody any more,
    /// with its socket open all the same.
    static func ask(
        _ record: MountRecord, _ request: ControlRequest, in directory: String, deadline: Int64
    ) -> Result<ControlReply, Failure> {
        var hungUp = 0
        if record.isOver(in: directory) { return .failure(.dead) }
        let silence = { (reason: String) -> Failure in record.isOver(in: directory) ? .dead : .silent(reason) }
        while true {
            do {
                return .success(
                    try ControlClient.ask(request, socket: record.socket, directory: directory, deadline: deadline))
            } catch {
                switch error {
                case .absent:
                    if !record.isServed(in: directory) { return .failure(.dead) }
                case .hungUp:
                    // It ended, or is about to; a third try that is hung up on is an answer.
                    hungUp += 1
                    if hungUp > 20 && record.isServed(in: directory) { return .failure(.silent(error.description)) }
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
    var isDead: Bool {
        if case .failure(.dead) = self { return true }
        return false
    }
}
