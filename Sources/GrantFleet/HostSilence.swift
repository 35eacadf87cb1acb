import GrantModel
import GrantSystem

/// The revisions at which a host's own keys were written last, or 0 if the key does not exist. Only
/// the host and administrators write them.
struct HostMarks: Sendable, Equatable {
    var agent: Int64 = 0
    var alive: Int64 = 0
    var state: Int64 = 0
}

/// Since when hosts that have not confirmed a change have written nothing. Such a host extends its lease only by writing
/// (`FleetKeys.alive`), so after a whole lease it is fenced, even if another client keeps its lease in etcd.
///
/// The record is kept in a file for the next command. It is void after a reboot, and after the change signal was deleted: hosts
/// announce nothing while that is missing.
struct HostSilence: Sendable {
    struct Mark: Sendable, Equatable {
        var keys: HostMarks
        /// By `BootClock`: when the keys were first seen so.
        var since: Int64
    }

    /// The revision at which the change signal was created.
    let signal: Int64
    private(set) var hosts: [String: Mark] = [:]

    init(signal: Int64) { self.signal = signal }

    /// Reads the record from a file. It is empty if the file is missing or void.
    init(signal: Int64, file: String?) {
        self.signal = signal
        guard let file, let bytes = try? PrivateFile.read(file), let json = try? JSONValue(text: bytes),
            json["boot"]?.string == Boot.id, json["signal"]?.integer == signal, case .object(let members)? = json["hosts"]
        else { return }
        for (id, member) in members {
            let numbers = (member.items ?? []).compactMap(\.integer)
            guard numbers.count == 4, numbers[3] <= BootClock.now else { continue }
            hosts[id] = Mark(keys: HostMarks(agent: numbers[0], alive: numbers[1], state: numbers[2]), since: numbers[3])
        }
    }

    /// Best effort: without the record the next command waits for a whole lease.
    func write(to file: String?) {
        guard let file else { return }
        let json = JSONValue.object([
            "boot": .string(Boot.id), "signal": .integer(signal),
            "hosts": .object(
                hosts.mapValues { .array([$0.keys.agent, $0.keys.alive, $0.keys.state, $0.since].map { .integer($0) }) }),
        ])
        try? PrivateFile.write(json.text, to: file, lasts: false)
    }

    /// Takes note of a host's keys, as read now.
    mutating func see(_ id: String, _ keys: HostMarks) {
        if hosts[id]?.keys != keys { hosts[id] = Mark(keys: keys, since: BootClock.now) }
    }

    /// The silence of this host begins again.
    mutating func forget(_ id: String) { hosts[id] = nil }

    /// Nanoseconds until the host has been silent for so many seconds, negative if it has, or nil
    /// if it was not seen.
    func timeLeft(of id: String, lease: Int64) -> Int64? {
        hosts[id].map { $0.since + lease * 1_000_000_000 - BootClock.now }
    }

    mutating func keep(_ ids: Set<String>) { hosts = hosts.filter { ids.contains($0.key) } }
}

extension FleetStore {
    /// Reads the record of silent hosts, or nil while there is no change signal.
    func silence() -> HostSilence? {
        guard let entry = try? client.read(FleetKeys.changeSignal).entry else { return nil }
        return HostSilence(signal: entry.created, file: silenceFile)
    }

    /// Deletes the word of an agent that has been silent for a whole lease. Returns whether it had written nothing until then.
    func end(_ id: String, _ keys: HostMarks, signal: Int64) -> Bool {
        let answer = try? disarming { () throws(EtcdFailure) in
            try client.transaction(
                [
                    .modified(FleetKeys.agent(id), keys.agent), .modified(FleetKeys.alive(id), keys.alive),
                    .modified(FleetKeys.state(id), keys.state), .created(FleetKeys.changeSignal, signal),
                ],
                then: [.delete(FleetKeys.agent(id)), .delete(FleetKeys.alive(id)), .delete(FleetKeys.state(id))])
        }
        return answer?.succeeded ?? false
    }
}
