import GrantModel

/// A grant of the fleet in the state that this host should have.
public struct FleetDesiredGrant: Sendable {
    public var id: GrantID
    public var view: ViewName
    public var name: GrantName
    public var access: Access
    /// Whether the grant is active in the fleet.
    public var isActive: Bool
    public var expires: Instant?
    public var coordination: Coordination
    public var rules: GrantRules
    /// `Grant.fleetActivation`.
    public var activation: Int64
    public var created: Instant
    /// The user that last changed it in the fleet, for the log.
    public var by = ""
    /// The directory's bookmark, if it was found and this host does not have it yet.
    public var bookmark: Bookmark?

    public init(
        id: GrantID, view: ViewName, name: GrantName, access: Access, isActive: Bool, expires: Instant?, coordination: Coordination,
        rules: GrantRules, activation: Int64, created: Instant, bookmark: Bookmark? = nil
    ) {
        (self.id, self.view, self.name, self.access, self.isActive) = (id, view, name, access, isActive)
        (self.expires, self.coordination, self.activation, self.created) = (expires, coordination, activation, created)
        (self.rules, self.bookmark) = (rules, bookmark)
    }
}

extension FleetDesiredGrant {
    /// For the log.
    fileprivate var reason: String { by.isEmpty ? "by the fleet" : "by the fleet: \(by)" }
}

/// The result of a reconciliation.
public struct FleetReconciliation: Sendable {
    /// The changed grants in their new state, or in their last state if they were removed.
    public var changed: [Grant] = []
    /// The changed grants that the fleet no longer has, and that were revoked.
    ///
    /// They must be removed once all mounts have confirmed it.
    public var orphans: [GrantID] = []
    /// Why grants were not taken over.
    public var refused: [GrantID: String] = [:]
}

extension GrantStore {
    /// Makes the fleet's grants in this store match `desired`, in one transaction.
    ///
    /// A grant that is not desired is revoked, and removed the next time. Grants that were made on
    /// this host stay, and keep their names. A grant that was revoked on this host stays revoked
    /// until the fleet activates it again.
    public func reconcile(_ desired: [FleetDesiredGrant], by actor: Actor) throws(GrantError) -> FleetReconciliation {
        let all = try grants()
        // If nothing differs, nothing is written and no lock waited for.
        let ordered = Dictionary(desired.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let stray = all.filter { $0.fleetActivation != nil && ordered[$0.id] == nil }
        let isSame = desired.allSatisfy { wanted in
            guard let own = all.first(where: { $0.id == wanted.id }) else { return !wanted.isActive || wanted.bookmark == nil }
            return own.fleetActivation != nil && !GrantStore.changes(wanted, own).isChange
        }
        if isSame, stray.isEmpty { return FleetReconciliation() }
        return try write(withdraws: true) { (database) throws(GrantError) in
            var result = FleetReconciliation()
            for var grant in stray {
                // In two steps: after a crash the next process has to know which grants to ask the
                // mounts about.
                if grant.state == .active {
                    grant.state = .revoked
                    try save(grant, in: database)
                    try log(.revoked, grant, actor, "by the fleet", in: database)
                    result.orphans.append(grant.id)
                } else {
                    try database.query("DELETE FROM grants WHERE id = ?", [.blob(grant.id.bytes)])
                    try log(.removed, grant, actor, "by the fleet", in: database)
                }
                result.changed.append(grant)
            }
            for desiredGrant in desired {
                if let own = try find(desiredGrant.id, in: database) {
                    try reconcile(desiredGrant, own, actor, &result, database)
                } else if desiredGrant.isActive, let bookmark = desiredGrant.bookmark {
                    try insertDesired(desiredGrant, bookmark, actor, &result, database)
                }
            }
            return result
        }
    }

    private func insertDesired(
        _ desiredGrant: FleetDesiredGrant, _ bookmark: Bookmark, _ actor: Actor, _ result: inout FleetReconciliation, _ database: Database
    ) throws(GrantError) {
        do throws(GrantError) {
            try requireFree(desiredGrant.name, in: desiredGrant.view, database)
        } catch {
            guard error.code == .alreadyExists else { throw error }
            result.refused[desiredGrant.id] = try taken(desiredGrant, database)
            return
        }
        let grant = Grant(
            id: desiredGrant.id, view: desiredGrant.view, name: desiredGrant.name, bookmark: bookmark, access: desiredGrant.access,
            created: desiredGrant.created,
            expires: desiredGrant.expires, coordination: desiredGrant.coordination, fleetActivation: desiredGrant.activation,
            rules: desiredGrant.rules)
        try add(grant, in: database)
        try log(.granted, grant, actor, desiredGrant.reason, in: database)
        result.changed.append(grant)
    }

    private func reconcile(
        _ desiredGrant: FleetDesiredGrant, _ own: Grant, _ actor: Actor, _ result: inout FleetReconciliation, _ database: Database
    ) throws(GrantError) {
        guard own.fleetActivation != nil else {
            result.refused[desiredGrant.id] = "a grant that was made here has its id"
            return
        }
        let wanted = GrantStore.changes(desiredGrant, own)
        guard wanted.isChange else { return }
        var grant = wanted.grant
        if grant.name != own.name || grant.view != own.view {
            do throws(GrantError) {
                try requireFree(grant.name, in: grant.view, database)
            } catch {
                guard error.code == .alreadyExists else { throw error }
                result.refused[desiredGrant.id] = try taken(desiredGrant, database)
                (grant.name, grant.view) = (own.name, own.view)
            }
        }
        try save(grant, in: database)
        let event: LogEvent = grant.state == own.state ? .changed : grant.state == .active ? .restored : .revoked
        try log(event, grant, actor, desiredGrant.reason, in: database)
        result.changed.append(grant)
    }

    private func taken(_ desiredGrant: FleetDesiredGrant, _ database: Database) throws(GrantError) -> String {
        var isFleet = false
        try database.query(
            "SELECT 1 FROM grants WHERE view = ? AND name = ? AND fleet_activation IS NOT NULL",
            [.blob(Array(desiredGrant.view.description.utf8)), .blob(desiredGrant.name.bytes)]
        ) { (_) throws(GrantError) in isFleet = true }
        return isFleet
            ? "the fleet's grant of this name before it is not withdrawn from all mounts yet"
            : "the view “\(desiredGrant.view)” has a grant named “\(desiredGrant.name)” that was made here"
    }

    private static func changes(_ desiredGrant: FleetDesiredGrant, _ own: Grant) -> (grant: Grant, isChange: Bool) {
        var grant = own
        (grant.view, grant.name, grant.access) = (desiredGrant.view, desiredGrant.name, desiredGrant.access)
        (grant.expires, grant.coordination, grant.rules) = (desiredGrant.expires, desiredGrant.coordination, desiredGrant.rules)
        if !desiredGrant.isActive {
            if grant.state == .active { grant.state = .revoked }
        } else if desiredGrant.activation > own.fleetActivation ?? 0 {
            // Set even if it is active: this host has missed a revocation and a restore, and
            // earlier opens must be refused in any case.
            grant.state = .active
            grant.activation &+= 1
        }
        grant.fleetActivation = desiredGrant.activation
        let isChange =
            grant.view != own.view || grant.name != own.name || grant.access != own.access || grant.expires != own.expires
            || grant.coordination != own.coordination || grant.rules != own.rules || grant.state != own.state
            || grant.fleetActivation != own.fleetActivation
        return (grant, isChange)
    }
}
