import GrantModel
import GrantSystem

/// All hosts and grants of a fleet as they were at one moment, and how each host stands to each grant.
///
/// Hosts were read before the grants: one that is said to have done what a grant says has done it.
public struct FleetPicture: Sendable {
    public let hosts: [FleetHost]
    /// By view and name.
    public let grants: [FleetGrant]
    /// What is no grant, though it stands where grants do.
    public let flaws: [GrantError]
    /// At which the hosts were read.
    public let revision: Int64
    /// For how many seconds a host that is cut off may serve.
    public let lease: Int64
    public let time: Instant
    /// The seconds of leases that are left, of those hosts that were asked for.
    public let left: [String: Int64]

    /// How a host stands to what the fleet says of a grant.
    public enum Standing: String, Sendable {
        /// Every mount there does what the fleet says.
        case confirmed
        /// It may show what was, until it confirms or its lease ends.
        case waiting
        /// Its lease is gone, and it shows nothing of the fleet.
        case gone
    }

    public init(
        hosts: [FleetHost], grants: [FleetGrant], flaws: [GrantError] = [], revision: Int64, lease: Int64, time: Instant,
        left: [String: Int64] = [:]
    ) {
        (self.hosts, self.grants, self.flaws, self.revision) = (hosts, grants, flaws, revision)
        (self.lease, self.time, self.left) = (lease, time, left)
    }

    /// nil where the grant is not the host's business.
    public func standing(of host: FleetHost, to grant: FleetGrant) -> Standing? {
        guard host.isConcerned(by: grant) else { return nil }
        if host.lease == nil { return .gone }
        return host.applied >= grant.revision ? .confirmed : .waiting
    }

    /// The revision of the last change that concerns a host; 0 when there is none.
    public func wanted(of host: FleetHost) -> Int64 {
        grants.reduce(0) { last, grant in grant.revision > last && host.isConcerned(by: grant) ? grant.revision : last }
    }

    /// Whether a host that is there has not done all that the fleet says.
    public func isLagging(_ host: FleetHost) -> Bool { host.lease != nil && host.applied < wanted(of: host) }

    /// When the lease of a host ends unless it is renewed, where that was asked for.
    public func end(of host: FleetHost) -> Instant? {
        // etcd leaves out what is less than a second.
        left[host.id].map { time.adding(seconds: Double($0) + 1) }
    }
}

extension FleetStore {
    /// Looks at all of it. `leases`: of so many hosts at the most it is asked how long their leases last, those first that lag.
    public func picture(leases: Int) throws(GrantError) -> FleetPicture {
        let lease = try format().lease
        let (hosts, revision) = try hosts()
        let (grants, flaws) = try grants()
        let now = Instant(nanoseconds: Clock.realtime)
        let bare = FleetPicture(hosts: hosts, grants: grants, flaws: flaws, revision: revision, lease: lease, time: now)
        let live = hosts.filter { $0.lease != nil }
        let lagging = Set(live.filter { bare.isLagging($0) }.map(\.id))
        // Each costs a request: of a large fleet only those matter that hold something up.
        let asked = live.count <= leases ? live : live.filter { lagging.contains($0.id) }
        var left: [String: Int64] = [:]
        for host in asked.prefix(leases) { left[host.id] = timeLeft(of: host) }
        return FleetPicture(hosts: hosts, grants: grants, flaws: flaws, revision: revision, lease: lease, time: now, left: left)
    }

    /// Says that something of the fleet has changed behind a revision, each time with the revision of the change, until `goesOn` says false (asked once a second), or the time is over.
    /// It has the client for as long.
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
            // A look shows what was forgotten.
            case .compacted(let oldest): each(oldest)
            case .stopped: return
            default: throw error.error("the fleet cannot be watched")
            }
        }
    }
}

extension FleetGrant {
    /// As it is when it is withdrawn.
    public var revoked: FleetGrant {
        var grant = self
        grant.state = .revoked
        return grant
    }

    /// As it is when it is given back; itself when it is active.
    public func restored(at now: Instant) -> FleetGrant {
        var grant = self
        guard state(at: now) != .active else { return grant }
        grant.state = .active
        grant.activation &+= 1
        if let expires, expires <= now { grant.expires = nil }
        return grant
    }
}
