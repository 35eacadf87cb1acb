import GrantModel
import GrantSystem

/// A host of the fleet, as it is in etcd.
public struct FleetHost: Sendable {
    public let id: String
    public var labels = Labels()
    /// nil: it was never invited, or was taken out.
    public var registered: Int64?
    /// The lease of the host's agent, or nil if it has ended, and with it all that the host served
    /// of the fleet.
    public var lease: Int64?
    /// It has applied all changes up to this revision.
    public var applied: Int64 = 0
    /// What it has written last.
    var marks = HostMarks()
    /// The lease of the key by which the host announces itself.
    var aliveLease: Int64?
    /// How far etcd's clock is ahead of its own, in seconds.
    public var clock: Int64 = 0
    public var version = ""
    /// What it cannot apply, by grant.
    public var problems: [String: String] = [:]

    /// No more is kept of a text in which a host says something of itself: scalars.
    private static let longest = 1_000
    /// An entry that has no grant's id is dropped.
    private static let longestID = 64

    /// Whether its agent writes before it extends a lease, as programs do since the key `alive` exists.
    var isAnnouncing: Bool { lease != nil && lease == aliveLease }

    mutating func take(_ entry: EtcdEntry) {
        switch entry.key {
        case FleetKeys.agent(id): (lease, marks.agent) = (entry.lease, entry.modified)
        case FleetKeys.alive(id): (aliveLease, marks.alive) = (entry.lease, entry.modified)
        case FleetKeys.state(id): marks.state = entry.modified
        default: break
        }
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
        switch key {
        case FleetKeys.agent(id): (lease, marks.agent) = (nil, 0)
        case FleetKeys.alive(id): (aliveLease, marks.alive) = (nil, 0)
        case FleetKeys.state(id): (applied, marks.state) = (0, 0)
        default: break
        }
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

/// The answer of a host to a change, or the host's known state without one.
public struct HostConfirmation: Sendable {
    public enum State: String, Sendable {
        case confirmed
        /// Its lease has ended, so it has closed the fleet's grants by itself.
        case fenced
        /// It may still serve the revoked grants.
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

    /// Whether the grant is active and each host that has confirmed it says why it cannot show it.
    public var isShownNowhere: Bool {
        let confirmed = hosts.filter { $0.state == .confirmed }
        return grant.state == .active && !confirmed.isEmpty && confirmed.allSatisfy { $0.reason != nil }
    }
}

extension FleetStore {
    /// Returns all hosts, sorted by id, and the revision at which they were read.
    public func hosts() throws(GrantError) -> (hosts: [FleetHost], revision: Int64) {
        let (registry, states) = try Self.mapping("the hosts cannot be read") { () throws(EtcdFailure) in
            // A host may write anything, of any size, below its own prefix: only its known keys are read.
            let keys = try client.list(FleetKeys.hosts, withValues: false)
            let known = keys.entries.filter { entry in
                FleetHost.id(in: entry.key).map { id in
                    [FleetKeys.agent(id), FleetKeys.alive(id), FleetKeys.state(id)].contains(entry.key)
                } ?? false
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

    /// Returns the remaining seconds of the hosts' leases, by host. A host is missing if its lease
    /// has ended, or that is unknown. Only a missing key proves that the lease has ended. It stops
    /// asking once no endpoint answers.
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

    /// Waits until each host concerned has confirmed or its lease has ended, at most `timeout`
    /// seconds.
    ///
    /// - Parameters:
    ///   - outcome: The recorded change.
    ///   - timeout: The longest wait, in seconds.
    ///   - progress: Gets how many of how many hosts are done.
    ///   - seen: Gets the hosts' answers each time a host is done, without the end of the others'
    ///     leases.
    /// - Throws: `.unconfirmed` if the hosts cannot be read within that time. The change is
    ///   recorded nevertheless.
    public func awaitHosts(
        _ outcome: Outcome, timeout: Double, progress: (@Sendable (Int, Int) -> Void)? = nil,
        seen: (@Sendable ([FleetChange]) -> Void)? = nil
    ) throws(GrantError) -> [FleetChange] {
        let start = Clock.monotonic
        let deadline = start + Int64(min(timeout, 1e6) * 1e9)
        // The recorded change is reported in time, even if etcd no longer answers.
        client.endRequests(at: max(deadline, start + 2_000_000_000))
        defer { client.endRequests(at: nil) }
        let found = try readHosts(until: deadline, outcome)
        let watching = HostWatch(found.hosts, outcome, since: start)
        if !watching.isDone { watching.judgeSilence(by: silence()) }
        var next = found.revision + 1
        let tell = {
            progress?(watching.done, watching.all)
            // The client that would ask for leases is busy watching.
            seen?(outcome.grants.map { FleetChange(grant: $0, hosts: watching.confirmations(of: $0) { _ in nil }) })
        }
        while true {
            for (id, keys, signal) in watching.silentHosts(for: lease) { watching.end(id, end(id, keys, signal: signal)) }
            guard !watching.isDone, Clock.monotonic < deadline else { break }
            tell()
            do throws(EtcdFailure) {
                let soonest = min(deadline - Clock.monotonic, watching.nextSilence(for: lease) ?? .max)
                let left = min(Self.longestWatch, max(1, Int(soonest / 1_000_000) + 1))
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
        watching.recordSilence(to: silenceFile)
        let left = watching.timeLeft(for: lease).merging(timeLeft(of: watching.unsettled.filter { !$0.isAnnouncing })) { own, _ in own }
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
