import GrantModel
import GrantSystem

/// The changes that make a fleet's grants match the declared ones: all grants of each view that is named.
public struct FleetPlan: Sendable {
    public enum Step: Sendable {
        case create(FleetGrant)
        /// The same grant with another access, expiry, coordination or other rules, or active again.
        case change(FleetGrant, to: FleetGrant)
        /// The directory or the hosts differ: the old grant is removed.
        case replace(FleetGrant, with: FleetGrant)
        /// No file declares it any more: it is revoked and removed.
        case withdraw(FleetGrant)
        case keep(FleetGrant)
        /// It differs from its declaration and stays so. `reason` is for people.
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

        /// Whether the step takes access away.
        public var takesAway: Bool {
            switch self {
            case .replace, .withdraw: true
            case .change(let old, let new):
                (new.access == .readOnly && old.access == .readWrite) || (new.expires != nil && new.expires != old.expires)
                    || (new.rules != old.rules && !old.rules.narrows(new.rules))
            case .create, .keep, .leave: false
            }
        }
    }

    /// Sorted by view and name.
    public let steps: [Step]

    /// `declared`: grants with the location of their declaration. `known`: the fleet's grants. A
    /// revoked or expired grant stays so, unless `restores`, as for one machine. Throws
    /// `.invalidFile` if two have the same name.
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
        if !own.isOfSameDirectory(as: wanted) || own.hosts != wanted.hosts { return isOver ? .withdraw(own) : .replace(own, with: wanted) }
        if isOver { return left("the declared time is over, so its expiry is unchanged") }
        var new = own
        (new.access, new.expires, new.coordination, new.rules) = (wanted.access, wanted.expires, wanted.coordination, wanted.rules)
        if state != .active {
            new.state = .active
            new.activation &+= 1
        }
        return new == own ? .keep(own) : .change(own, to: new)
    }
}

extension FleetStore {
    /// Carries out a plan: first what takes away, and the rest when the hosts have confirmed that or the time is over. Returns each
    /// host's answer for each grant.
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
            do throws(GrantError) {
                changes += try awaitHosts(outcome, timeout: timeout, progress: progress)
            } catch {
                throw GrantError(error.code, error.message, cause: error.cause, advice: "nothing else is done yet: apply the file again")
            }
            try forget(outcome.grants)
        }
        var outcome = Outcome(grants: [], revision: 0)
        if !changed.isEmpty {
            outcome = try change(changed.map { FleetStore.before($0, plan) }, "changed") { grant in
                guard let wanted = changed.first(where: { $0.id == grant.id }) else { return grant }
                var grant = grant
                (grant.access, grant.expires, grant.coordination) = (wanted.access, wanted.expires, wanted.coordination)
                grant.rules = wanted.rules
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

    /// The original of a changed grant in the plan.
    private static func before(_ grant: FleetGrant, _ plan: FleetPlan) -> FleetGrant {
        for case .change(let old, _) in plan.steps where old.id == grant.id { return old }
        return grant
    }
}
