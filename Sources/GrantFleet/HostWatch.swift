import GrantModel
import GrantSystem

/// The hosts that a change concerns, and when they confirmed it.
final class HostWatch {
    private var hosts: [String: FleetHost]
    private let outcome: FleetStore.Outcome
    private let start: Int64
    private var settled: [String: (state: HostConfirmation.State, milliseconds: Double)] = [:]
    private let concerned: Set<String>
    /// It is nil if hosts announce nothing now, because the change signal is missing.
    private var silence: HostSilence?

    init(_ hosts: [FleetHost], _ outcome: FleetStore.Outcome, since start: Int64) {
        self.hosts = Dictionary(hosts.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        (self.outcome, self.start) = (outcome, start)
        concerned = Set(hosts.filter { host in outcome.grants.contains { host.isConcerned(by: $0) } }.map(\.id))
        judgeAll()
    }

    var all: Int { concerned.count }
    var done: Int { settled.count }
    var isDone: Bool { settled.count == concerned.count }
    var unsettled: [FleetHost] { concerned.subtracting(settled.keys).sorted().compactMap { hosts[$0] } }

    /// A fleet has as many events as hosts, so each looks at the hosts that it is about alone.
    func take(_ events: EtcdClient.Events) {
        for key in events.deletes {
            guard let id = FleetHost.id(in: key) else { continue }
            hosts[id]?.lose(key)
            judge(id)
        }
        for entry in events.puts {
            guard let id = FleetHost.id(in: entry.key) else { continue }
            hosts[id, default: FleetHost(id: id)].take(entry)
            judge(id)
        }
    }

    func replace(_ again: [FleetHost]) {
        let ids = Set(again.map(\.id))
        for id in concerned where !ids.contains(id) { hosts[id]?.lease = nil }
        for host in again { hosts[host.id] = host }
        judgeAll()
    }

    private func judgeAll() { for id in concerned { judge(id) } }

    private func judge(_ id: String) {
        guard concerned.contains(id), settled[id] == nil, let host = hosts[id] else { return }
        let elapsed = Double(Clock.monotonic - start) / 1e6
        if host.lease == nil {
            settled[id] = (.fenced, elapsed)
        } else if host.applied >= outcome.revision {
            settled[id] = (.confirmed, elapsed)
        } else if host.isAnnouncing {
            silence?.see(id, host.marks)
        } else {
            silence?.forget(id)
        }
    }

    // MARK: silent hosts

    /// Judges hosts by their silence, beginning with the state that an earlier command has
    /// recorded.
    func judgeSilence(by record: HostSilence?) {
        silence = record
        judgeAll()
    }

    /// Returns the hosts that have been silent for so many seconds, with the keys that prove it.
    func silentHosts(for lease: Int64) -> [(id: String, keys: HostMarks, signal: Int64)] {
        guard let silence else { return [] }
        return unsettled.compactMap { host in
            guard let left = silence.timeLeft(of: host.id, lease: lease), left <= 0 else { return nil }
            return (host.id, host.marks, silence.signal)
        }
    }

    /// Counts a silent host as fenced if its keys were deleted. Otherwise it has written something
    /// meanwhile.
    func end(_ id: String, _ isDeleted: Bool) {
        silence?.forget(id)
        if isDeleted { for key in [FleetKeys.agent(id), FleetKeys.alive(id), FleetKeys.state(id)] { hosts[id]?.lose(key) } }
        judge(id)
    }

    /// Nanoseconds until the next host has been silent for a lease.
    func nextSilence(for lease: Int64) -> Int64? {
        unsettled.compactMap { silence?.timeLeft(of: $0.id, lease: lease) }.min()
    }

    /// Seconds until hosts have been silent for a lease, by host.
    func timeLeft(for lease: Int64) -> [String: Int64] {
        var result: [String: Int64] = [:]
        for host in unsettled { result[host.id] = silence?.timeLeft(of: host.id, lease: lease).map { max(0, $0 / 1_000_000_000) } }
        return result
    }

    func recordSilence(to file: String?) {
        guard var silence, !isDone else { return }
        silence.keep(Set(unsettled.map(\.id)))
        silence.write(to: file)
    }

    func confirmations(of grant: FleetGrant, left: (FleetHost) -> Int64?) -> [HostConfirmation] {
        concerned.sorted().compactMap { id in
            guard let host = hosts[id], host.registered == nil || host.isConcerned(by: grant) || settled[id] == nil else { return nil }
            let problem = host.problems[grant.id.description]
            if let (state, milliseconds) = settled[id] {
                return HostConfirmation(host: id, state: state, milliseconds: milliseconds, until: nil, reason: problem)
            }
            let elapsed = Double(Clock.monotonic - start) / 1e6
            let until = left(host).map { Instant(nanoseconds: Clock.realtime).adding(seconds: Double($0 + 1)) }
            return HostConfirmation(
                host: id, state: .waiting, milliseconds: elapsed, until: until,
                reason: problem ?? "it is at revision \(host.applied) of \(outcome.revision)")
        }
    }
}
