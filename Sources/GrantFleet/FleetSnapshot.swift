import GrantModel
import GrantSystem

/// A consistent snapshot of the hosts and grants of a fleet, with each host's status for each grant.
///
/// The hosts were read before the grants, so a host that is reported to have applied a grant has
/// applied it.
public struct FleetSnapshot: Sendable {
    public let hosts: [FleetHost]
    /// Sorted by view and name.
    public let grants: [FleetGrant]
    /// Errors of entries that are not valid grants.
    public let invalidEntries: [GrantError]
    /// The revision at which the hosts were read.
    public let revision: Int64
    /// For how many seconds a partitioned host may go on serving.
    public let lease: Int64
    public let time: Instant
    /// The remaining seconds of leases, for the requested hosts.
    public let left: [String: Int64]

    /// A host's status for a grant.
    public enum HostStatus: String, Sendable {
        /// Every mount there has applied the grant's state.
        case confirmed
        /// It may serve the previous state, until it confirms or its lease ends.
        case waiting
        /// Its lease has ended, and it serves nothing of the fleet.
        case gone
    }

    public init(
        hosts: [FleetHost], grants: [FleetGrant], invalidEntries: [GrantError] = [], revision: Int64, lease: Int64, time: Instant,
        left: [String: Int64] = [:]
    ) {
        (self.hosts, self.grants, self.invalidEntries, self.revision) = (hosts, grants, invalidEntries, revision)
        (self.lease, self.time, self.left) = (lease, time, left)
    }

    /// Returns nil if the grant does not concern the host.
    public func status(of host: FleetHost, for grant: FleetGrant) -> HostStatus? {
        guard host.isConcerned(by: grant) else { return nil }
        if host.lease == nil { return .gone }
        return host.applied >= grant.revision ? .confirmed : .waiting
    }

    /// The revision of the last change that concerns a host, or 0 if there is none.
    public func wanted(of host: FleetHost) -> Int64 {
        grants.reduce(0) { last, grant in grant.revision > last && host.isConcerned(by: grant) ? grant.revision : last }
    }

    /// Whether a live host has not applied all changes.
    public func isLagging(_ host: FleetHost) -> Bool { host.lease != nil && host.applied < wanted(of: host) }

    /// When a host's lease ends unless it is renewed, if that was requested.
    public func end(of host: FleetHost) -> Instant? {
        // etcd rounds down to whole seconds.
        left[host.id].map { time.adding(seconds: Double($0) + 1) }
    }
}

extension FleetStore {
    /// Reads everything. `leases`: for how many hosts at most the remaining time of the lease is read, lagging ones first.
    public func snapshot(leases: Int) throws(GrantError) -> FleetSnapshot {
        let lease = try format().lease
        let (hosts, revision) = try hosts()
        let (grants, invalidEntries) = try grants()
        let now = Instant(nanoseconds: Clock.realtime)
        let bare = FleetSnapshot(hosts: hosts, grants: grants, invalidEntries: invalidEntries, revision: revision, lease: lease, time: now)
        let live = hosts.filter { $0.lease != nil }
        let lagging = Set(live.filter { bare.isLagging($0) }.map(\.id))
        // Each lease is a request. In a large fleet only the hosts matter that delay something.
        let asked = live.count <= leases ? live : live.filter { lagging.contains($0.id) }
        let left = timeLeft(of: Array(asked.prefix(leases)))
        return FleetSnapshot(
            hosts: hosts, grants: grants, invalidEntries: invalidEntries, revision: revision, lease: lease, time: now, left: left)
    }

    /// Calls `each` with the revision of each change after a revision, until `goesOn` (asked once a second) returns false, or the time
    /// is over. The client is in use all the while.
    public func watchChanges(
        after revision: Int64, milliseconds: Int, goesOn: @escaping () -> Bool, each: @escaping (Int64) -> Void
    ) throws(GrantError) {
        do throws(EtcdFailure) {
            try client.watch(FleetKeys.root, from: revision + 1, milliseconds: milliseconds, goesOn: goesOn) { events in
                each(events.revision)
                return goesOn()
            }
        } catch {
            switch error {
            // Reading again shows the compacted changes.
            case .compacted(let oldest): each(oldest)
            case .stopped: return
            default: throw error.error("the fleet cannot be watched")
            }
        }
    }
}

extension FleetGrant {
    /// The grant, revoked.
    public var revoked: FleetGrant {
        var grant = self
        grant.state = .revoked
        return grant
    }

    /// Returns the restored grant, or the grant itself if it is active.
    public func restored(at now: Instant) -> FleetGrant {
        var grant = self
        guard state(at: now) != .active else { return grant }
        grant.state = .active
        grant.activation &+= 1
        if let expires, expires <= now { grant.expires = nil }
        return grant
    }

    /// Returns the restored grant to a caller that has read it at a revision. Throws `.unconfirmed`
    /// if it has changed since, or is active.
    public func restored(at now: Instant, seen: Int64) throws(GrantError) -> FleetGrant {
        let cause =
            revision != seen
            ? "another administrator has changed it meanwhile" : state(at: now) == .active ? "it is active already" : nil
        if let cause { throw GrantError(.unconfirmed, "“\(name)” is not restored", cause: cause) }
        return restored(at: now)
    }
}
