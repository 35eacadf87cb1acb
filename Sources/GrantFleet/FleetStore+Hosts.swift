import GrantModel
import GrantSystem

/// A host of the fleet, as it is in etcd.
public struct FleetHost: Sendable {
    public let id: String
    public var labels = Labels()
    /// nil: it was never invited, or was taken out.
    public var registered: Int64?
    /// The lease of the host's agent; nil if it has ended, and with it whatever the host served of the fleet.
    public var lease: Int64?
    /// It has applied all changes up to this revision.
    public var applied: Int64 = 0
    /// How far etcd's clock is ahead of its own, in seconds.
    public var clock: Int64 = 0
    public var version = ""
    /// What it cannot apply, by grant.
    public var problems: [String: String] = [:]

    /// No more is kept of a text in which a host says something of itself: scalars.
    private static let longest = 1_000
    /// Of what is no grant's id, nothing is kept.
    private static let longestID = 64

    mutating func take(_ entry: EtcdEntry) {
        if entry.key == FleetKeys.agent(id) { lease = entry.lease }
        guard entry.key == FleetKeys.state(id), let json = try? JSONValue(text: entry.value) else { return }
        applied = json["revision"]?.integer ?? 0
        clock = json["clock"]?.integer ?? 0
        version = VisibleText.cut(json["version"]?.string ?? "", to: FleetHost.longest)
        problems = [:]
        guard case .object(let members)? = json["problems"] else { return }
        for (id, text) in members where id.utf8.count <= FleetHost.longestID {
            problems[id] = text.string.map { VisibleText.cut($0, to: FleetHost.longest) }
        }
    }

    mutating func lose(_ key: String) {
        if key == FleetKeys.agent(id) { lease = nil }
        if key == FleetKeys.state(id) { applied = 0 }
    }

    /// Whether a change of this grant concerns the host, also if it has not yet seen that its labels changed, and if it is no longer
    /// registered.
    public func isConcerned(by grant: FleetGrant) -> Bool {
        guard let registered else { return lease != nil }
        return grant.hosts.matches(host: id, labels) || (lease != nil && applied < registered)
    }

    /// The id in a key below `hosts/`.
    static func id(in key: String) -> String? {
        guard key.hasPrefix(FleetKeys.hosts) else { return nil }
        return key.dropFirst(FleetKeys.hosts.count).split(separator: "/").first.map(String.init)
    }
}

/// The answer of a host to a change, or what is known without one.
public struct HostConfirmation: Sendable {
    public enum State: String, Sendable {
        case confirmed
        /// Its lease has ended, so it has closed the fleet's grants by itself.
        case fenced
        /// It may still serve what was revoked.
        case waiting
    }

    public let host: String
    public var state: State
    /// The time it took.
    public var milliseconds: Double
    /// For a waiting host: when its lease ends unless it is renewed.
    public var until: Instant?
    public var reason: String?
}

/// A grant after a change, and the hosts' answers.
public struct FleetChange: Sendable {
    public let grant: FleetGrant
    public let hosts: [HostConfirmation]

    public init(grant: FleetGrant, hosts: [HostConfirmation]) { (self.grant, self.hosts) = (grant, hosts) }

    public var isConfirmed: Bool { hosts.allSatisfy { $0.state != .waiting } }
}

extension FleetStore {
    /// Returns all hosts, sorted by id, and the revision at which they were read.
    public func hosts() throws(GrantError) -> (hosts: [FleetHost], revision: Int64) {
        let (registry, states) = try Self.mapping("the hosts cannot be read") { () throws(EtcdFailure) in
            // A host may write anything, of any size, below its own prefix: only its known keys are read.
            let keys = try client.list(FleetKeys.hosts, withValues: false)
            let known = keys.entries.filter { entry in
                FleetHost.id(in: entry.key).map { entry.key == FleetKeys.agent($0) || entry.key == FleetKeys.state($0) } ?? false
            }
            var entries = known.filter { !$0.key.hasSuffix("/state") }
            let states = known.filter { $0.key.hasSuffix("/state") }.map(\.key)
            // Each has at most 1.5 MB, and a response 64.
            for start in stride(from: 0, to: states.count, by: 20) {
                let answer = try client.transaction(then: states[start..<min(start + 20, states.count)].map { .read($0) })
                entries += answer.found.compactMap(\.first)
            }
            return (try client.list(FleetKeys.registry), (entries: entries, revision: keys.revision))
        }
        var hosts: [String: FleetHost] = [:]
        for entry in registry.entries {
            let id = String(entry.key.dropFirst(FleetKeys.registry.count))
            var host = FleetHost(id: id)
            host.registered = entry.modified
            if let json = try? JSONValue(text: entry.value), case .object(let members)? = json["labels"] {
                host.labels = Labels(members.compactMapValues(\.string))
            }
            hosts[id] = host
        }
        for entry in states.entries {
            guard let id = FleetHost.id(in: entry.key) else { continue }
            hosts[id, default: FleetHost(id: id)].take(entry)
        }
        return (hosts.values.sorted { $0.id < $1.id }, states.revision)
    }

    /// Returns the remaining seconds of the hosts' leases, by host; a host is missing if its lease has ended, or that is unknown. Only a
    /// missing key proves that the lease has ended. Asks no more once no endpoint answers.
    public func timeLeft(of hosts: [FleetHost]) -> [String: Int64] {
        var result: [String: Int64] = [:]
        for host in hosts {
            guard let lease = host.lease else { continue }
            do throws(EtcdFailure) {
                result[host.id] = try client.timeLeft(ofLease: lease)
            } catch {
                if error.isSilence { break }
            }
        }
        return result
    }

    /// How long one watch lasts, in milliseconds: a member of etcd that has stopped hangs up nothing, and another one is asked then.
    private static let longestWatch = 5_000

    /// Waits until each host concerned has confirmed or its lease has ended, at most `timeout` seconds. `progress`: how many of how
    /// many are done. `seen`: called with the hosts' answers each time one is done, without the end of the others' leases.
    /// `.unconfirmed` if the hosts cannot be read within that time: the change is recorded all the same.
    public func awaitHosts(
        _ outcome: Outcome, timeout: Double, progress: (@Sendable (Int, Int) -> Void)? = nil,
        seen: (@Sendable ([FleetChange]) -> Void)? = nil
    ) throws(GrantError) -> [FleetChange] {
        let start = Clock.monotonic
        let deadline = start + Int64(min(timeout, 1e6) * 1e9)
        let found = try readHosts(until: deadline, outcome)
        let watching = HostWatch(found.hosts, outcome, since: start)
        var next = found.revision + 1
        let tell = {
            progress?(watching.done, watching.all)
            // The client that would ask for leases is busy watching.
            seen?(outcome.grants.map { FleetChange(grant: $0, hosts: watching.confirmations(of: $0) { _ in nil }) })
        }
        while !watching.isDone, Clock.monotonic < deadline {
            tell()
            do throws(EtcdFailure) {
                let left = min(Self.longestWatch, max(1, Int((deadline - Clock.monotonic) / 1_000_000)))
                try client.watch(FleetKeys.hosts, from: next, milliseconds: left) { events in
                    watching.take(events)
                    next = events.revision + 1
                    tell()
                    return !watching.isDone
                }
            } catch {
                // Reading again shows what the watch has missed.
                ThreadSleep.milliseconds(50)
                guard let again = try? hosts() else { continue }
                watching.replace(again.hosts)
                next = again.revision + 1
            }
        }
        let left = timeLeft(of: watching.unsettled)
        return outcome.grants.map { grant in
            FleetChange(grant: grant, hosts: watching.confirmations(of: grant) { left[$0.id] })
        }
    }

    /// Reads the hosts, again until etcd answers or `deadline` has passed.
    private func readHosts(until deadline: Int64, _ outcome: Outcome) throws(GrantError) -> (hosts: [FleetHost], revision: Int64) {
        while true {
            do throws(GrantError) {
                return try hosts()
            } catch {
                guard error.code != .system || Clock.monotonic >= deadline else {
                    ThreadSleep.milliseconds(200)
                    continue
                }
                let names = outcome.grants.prefix(3).map { "“\($0.name)”" }.joined(separator: ", ")
                let others = outcome.grants.count > 3 ? " and \(outcome.grants.count - 3) others" : ""
                throw GrantError(
                    .unconfirmed, "the change of \(names)\(others) is recorded, but which hosts have applied it is not known",
                    cause: [error.message, error.cause].compactMap { $0 }.joined(separator: ": "),
                    advice: "grantfs fleet hosts shows how far each of them is")
            }
        }
    }
}

/// The hosts that a change concerns, and when they confirmed it.
private final class HostWatch {
    private var hosts: [String: FleetHost]
    private let outcome: FleetStore.Outcome
    private let start: Int64
    private var settled: [String: (state: HostConfirmation.State, milliseconds: Double)] = [:]
    private let concerned: Set<String>

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
        }
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
