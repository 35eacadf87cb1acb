import GrantModel

/// A grant of the fleet as this host is to have it.
public struct FleetOrder: Sendable {
    public var id: GrantID
    public var view: ViewName
    public var name: GrantName
    public var access: Access
    /// Whether the fleet has it active.
    public var isActive: Bool
    public var expires: Instant?
    public var coordination: Coordination
    /// `Grant.fleetActivation`.
    public var activation: Int64
    public var created: Instant
    /// Who changed it last in the fleet, for the log.
    public var by = ""
    /// Of the directory, where it was found and is not known here yet.
    public var bookmark: Bookmark?

    public init(
        id: GrantID, view: ViewName, name: GrantName, access: Access, isActive: Bool, expires: Instant?, coordination: Coordination,
        activation: Int64, created: Instant, bookmark: Bookmark? = nil
    ) {
        (self.id, self.view, self.name, self.access, self.isActive) = (id, view, name, access, isActive)
        (self.expires, self.coordination, self.activation, self.created) = (expires, coordination, activation, created)
        self.bookmark = bookmark
    }
}

extension FleetOrder {
    /// For the log.
    fileprivate var reason: String { by.isEmpty ? "by the fleet" : "by the fleet: \(by)" }
}

/// What obeying the fleet has changed here.
public struct FleetResult: Sendable {
    /// As they are now, or were when they were forgotten.
    public var changed: [Grant] = []
    /// Those of them that are ordered no more, and revoked: to be removed when all mounts have confirmed it.
    public var strays: [GrantID] = []
    /// Why some were left out.
    public var refused: [GrantID: String] = [:]
}

extension GrantStore {
    /// Makes the fleet's grants in this store those of `orders`, in one transaction: what is there and not ordered is revoked, and forgotten the next time. Grants that were made here are left alone, and
    /// keep their names. What somebody has withdrawn here stays withdrawn until the fleet activates it anew.
    public func obey(_ orders: [FleetOrder], by actor: Actor) throws(GrantError) -> FleetResult {
        let all = try grants()
        // Nothing is written, and nothing waited for, where everything is so.
        let ordered = Dictionary(orders.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let stray = all.filter { $0.fleetActivation != nil && ordered[$0.id] == nil }
        let isSame = orders.allSatisfy { order in
            guard let own = all.first(where: { $0.id == order.id }) else { return !order.isActive || order.bookmark == nil }
            return own.fleetActivation != nil && !GrantStore.changes(order, own).isChange
        }
        if isSame, stray.isEmpty { return FleetResult() }
        return try write(withdraws: true) { (database) throws(GrantError) in
            var result = FleetResult()
            for var grant in stray {
                // Not in one step: whoever comes after a crash has to know of what it has to ask the mounts.
                if grant.state == .active {
                    grant.state = .revoked
                    try save(grant, in: database)
                    try log(.revoked, grant, actor, "by the fleet", in: database)
                    result.strays.append(grant.id)
                } else {
                    try database.query("DELETE FROM grants WHERE id = ?", [.blob(grant.id.bytes)])
                    try log(.removed, grant, actor, "by the fleet", in: database)
                }
                result.changed.append(grant)
            }
            for order in orders {
                if let own = try find(order.id, in: database) {
                    try obey(order, own, actor, &result, database)
                } else if order.isActive, let bookmark = order.bookmark {
                    try obeyNew(order, bookmark, actor, &result, database)
                }
            }
            return result
        }
    }

    private func obeyNew(
        _ order: FleetOrder, _ bookmark: Bookmark, _ actor: Actor, _ result: inout FleetResult, _ database: Database
    ) throws(GrantError) {
        do throws(GrantError) {
            try requireFree(order.name, in: order.view, database)
        } catch {
            guard error.code == .alreadyExists else { throw error }
            result.refused[order.id] = try taken(order, database)
            return
        }
        let grant = Grant(
            id: order.id, view: order.view, name: order.name, bookmark: bookmark, access: order.access, created: order.created,
            expires: order.expires, coordination: order.coordination, fleetActivation: order.activation)
        try database.query("INSERT INTO grants (\(GrantStore.columns)) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values(of: grant))
        try log(.granted, grant, actor, order.reason, in: database)
        result.changed.append(grant)
    }

    private func obey(
        _ order: FleetOrder, _ own: Grant, _ actor: Actor, _ result: inout FleetResult, _ database: Database
    ) throws(GrantError) {
        guard own.fleetActivation != nil else {
            result.refused[order.id] = "a grant that was made here has its id"
            return
        }
        let wanted = GrantStore.changes(order, own)
        guard wanted.isChange else { return }
        var grant = wanted.grant
        if grant.name != own.name || grant.view != own.view {
            do throws(GrantError) {
                try requireFree(grant.name, in: grant.view, database)
            } catch {
                guard error.code == .alreadyExists else { throw error }
                result.refused[order.id] = try taken(order, database)
                (grant.name, grant.view) = (own.name, own.view)
            }
        }
        try save(grant, in: database)
        let event: LogEvent = grant.state == own.state ? .changed : grant.state == .active ? .restored : .revoked
        try log(event, grant, actor, order.reason, in: database)
        result.changed.append(grant)
    }

    private func taken(_ order: FleetOrder, _ database: Database) throws(GrantError) -> String {
        var isFleet = false
        try database.query(
            "SELECT 1 FROM grants WHERE view = ? AND name = ? AND fleet_activation IS NOT NULL",
            [.blob(Array(order.view.description.utf8)), .blob(order.name.bytes)]
        ) { (_) throws(GrantError) in isFleet = true }
        return isFleet
            ? "the fleet's grant of this name before it is not withdrawn from all mounts yet"
            : "the view “\(order.view)” has a grant named “\(order.name)” that was made here"
    }

    private static func changes(_ order: FleetOrder, _ own: Grant) -> (grant: Grant, isChange: Bool) {
        var grant = own
        (grant.view, grant.name, grant.access) = (order.view, order.name, order.access)
        (grant.expires, grant.coordination) = (order.expires, order.coordination)
        if !order.isActive {
            if grant.state == .active { grant.state = .revoked }
        } else if order.activation > own.fleetActivation ?? 0 {
            // Also where it is active: then this host has not heard of a withdrawal that was taken back, and what was open before is to be refused all the same.
            grant.state = .active
            grant.activation &+= 1
        }
        grant.fleetActivation = order.activation
        let isChange =
            grant.view != own.view || grant.name != own.name || grant.access != own.access || grant.expires != own.expires
            || grant.coordination != own.coordination || grant.state != own.state || grant.fleetActivation != own.fleetActivation
        return (grant, isChange)
    }
}
