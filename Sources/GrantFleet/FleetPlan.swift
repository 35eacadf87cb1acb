import GrantModel
import GrantSystem

/// What is to be done so that what a fleet grants is what was declared: of each view that is named, all of its grants.
public struct FleetPlan: Sendable {
    public enum Step: Sendable {
        case create(FleetGrant)
        /// The same grant with another access, expiry or coordination, or active again.
        case change(FleetGrant, to: FleetGrant)
        /// It is of another directory, or for other hosts: the old grant goes.
        case replace(FleetGrant, with: FleetGrant)
        /// It is in no file any more: revoked, and forgotten.
        case withdraw(FleetGrant)
        case keep(FleetGrant)
        /// It is not as declared, and stays as it is; for people.
        case leave(view: ViewName, name: GrantName, reason: String)

        public var place: (view: ViewName, name: GrantName) {
            switch self {
            case .create(let grant), .change(let grant, _), .replace(let grant, _), .withdraw(let grant), .keep(let grant):
                (grant.view, grant.name)
            case .leave(let view, let name, _): (view, name)
            }
        }

        public var isChange: Bool {
            switch self {
            case .create, .change, .replace, .withdraw: true
            case .keep, .leave: false
            }
        }

        /// Whether somebody loses something by it.
        public var takesAway: Bool {
            switch self {
            case .replace, .withdraw: true
            case .change(let old, let new):
                (new.access == .readOnly && old.access == .readWrite) || (new.expires != nil && new.expires != old.expires)
            case .create, .keep, .leave: false
            }
        }
    }

    /// By view and name.
    public let steps: [Step]

    /// `declared`: each with where that is said. `known`: what the fleet has. What was revoked, or has expired, stays so, unless `restores`, as for one machine.
    /// `.invalidFile` when two are declared under one name.
    public init(
        _ declared: [(grant: FleetGrant, place: String)], views: Set<ViewName>, known: [FleetGrant], restores: Bool, now: Instant
    ) throws(GrantError) {
        struct Place: Hashable {
            let view: ViewName
            let name: GrantName
        }
        let views = views.union(declared.map(\.grant.view))
        var places: [Place: String] = [:]
        var steps: [Step] = []
        for (grant, place) in declared {
            if let other = places.updateValue(place, forKey: Place(view: grant.view, name: grant.name)) {
                throw GrantError(.invalidFile, "\(place): “\(grant.name)” is in the view “\(grant.view)” already", cause: "by \(other)")
            }
            let own = known.first { $0.view == grant.view && $0.name == grant.name }
            steps.append(FleetPlan.step(grant, own, restores, now))
        }
        for grant in known
        where views.contains(grant.view) && places[Place(view: grant.view, name: grant.name)] == nil && grant.state(at: now) == .active {
            steps.append(.withdraw(grant))
        }
        self.steps = steps.sorted {
            ($0.place.view.description, $0.place.name.description) < ($1.place.view.description, $1.place.name.description)
        }
    }

    private static func step(_ wanted: FleetGrant, _ own: FleetGrant?, _ restores: Bool, _ now: Instant) -> Step {
        let isOver = wanted.expires.map { $0 <= now } ?? false
        let left = { (reason: String) in Step.leave(view: wanted.view, name: wanted.name, reason: reason) }
        guard let own else { return isOver ? left("its time is over") : .create(wanted) }
        let state = own.state(at: now)
        if state != .active, !restores || isOver {
            return left(
                (state == .expired ? "it has expired" : "it is \(state.rawValue)") + ", and stays so (--restore makes it active again)")
        }
        if own.path != wanted.path || own.hosts != wanted.hosts { return isOver ? .withdraw(own) : .replace(own, with: wanted) }
        if isOver { return left("the declared time is over, so its expiry stays as it is") }
        var new = own
        (new.access, new.expires, new.coordination) = (wanted.access, wanted.expires, wanted.coordination)
        if state != .active {
            new.state = .active
            new.activation &+= 1
        }
        return new == own ? .keep(own) : .change(own, to: new)
    }
}

extension FleetStore {
    /// Carries a plan out: what is taken away first, and what is given when the hosts have confirmed that or the time is over. What each host says to each grant.
    public func apply(
        _ plan: FleetPlan, timeout: Double, progress: (@Sendable (Int, Int) -> Void)? = nil
    ) throws(GrantError) -> [FleetChange] {
        var (gone, changed, made): ([FleetGrant], [FleetGrant], [FleetGrant]) = ([], [], [])
        for step in plan.steps {
            switch step {
            case .create(let grant): made.append(grant)
            case .replace(let old, let new):
                gone.append(old)
                made.append(new)
            case .withdraw(let old): gone.append(old)
            case .change(_, let new): changed.append(new)
            case .keep, .leave: break
            }
        }
        var changes: [FleetChange] = []
        if !gone.isEmpty {
            let outcome = try change(gone, "removed", withdraws: true) { grant in
                var grant = grant
                grant.state = .revoked
                return grant
            }
            changes += try awaitHosts(outcome, timeout: timeout, progress: progress)
            try forget(outcome.grants)
        }
        var outcome = Outcome(grants: [], revision: 0)
        if !changed.isEmpty {
            outcome = try change(changed.map { FleetStore.before($0, plan) }, "changed") { grant in
                guard let wanted = changed.first(where: { $0.id == grant.id }) else { return grant }
                var grant = grant
                (grant.access, grant.expires, grant.coordination) = (wanted.access, wanted.expires, wanted.coordination)
                if wanted.state == .active, grant.state != .active || wanted.activation > grant.activation {
                    grant.state = .active
                    grant.activation &+= 1
                }
                return grant
            }
        }
        for grant in made {
            let one = try create(grant)
            outcome.grants.append(one)
            outcome.revision = max(outcome.revision, one.revision)
        }
        if !outcome.grants.isEmpty { changes += try awaitHosts(outcome, timeout: timeout, progress: progress) }
        return changes
    }

    /// A changed grant as the plan has seen it.
    private static func before(_ grant: FleetGrant, _ plan: FleetPlan) -> FleetGrant {
        for case .change(let old, _) in plan.steps where old.id == grant.id { return old }
        return grant
    }
}
