import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Withdraws the grants: on disk first, then in every mount. When the store cannot be written the mounts shut the grants all
    /// the same, and the error says that nothing was recorded. `progress`: called on this thread while it takes long.
    ///
    /// `endsHolders`: of a mount whose daemon has died, the processes that hold something of it are killed, because nothing else makes the kernel
    /// forget. What they hold may be of any grant of that mount.
    ///
    /// `recorded`: called once the withdrawal is on disk, before any mount is asked.
    public func revoke(
        _ grants: [Grant], timeout: Double = standardTimeout, endsHolders: Bool = false, progress: ((CoordinationProgress) -> Void)? = nil,
        recorded: (() -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        let withdrawn: [Grant]
        do throws(GrantError) {
            withdrawn = try store.revoke(grants.map(\.id), by: actor)
        } catch {
            let shut = Announcer(store: store, withdraws: true).shut(grants, timeout: timeout)
            throw GrantError(
                error.code, "the withdrawal is not recorded", cause: error.description,
                advice: "until they are mounted anew, access is shut in \(shut.done) of \(shut.all) mounts; mend the store and revoke again"
            )
        }
        recorded?()
        return try announce(withdrawn, timeout, withdraws: true, endsHolders: endsHolders, progress: progress)
    }

    /// Makes the grants active again. `.invalidDirectory` when one of them now holds a mount of the store, or lies in one, `.permission` when the
    /// policy of the administrator does not allow it.
    public func restore(_ grants: [Grant], timeout: Double = standardTimeout) throws(GrantError) -> [GrantChange] {
        try requireOwn(grants, "restored")
        let placement = try Placement(store: store)
        let described = describe(grants)
        for grant in described where grant.finding.isUsable || grant.isSilent { try placement.check(grant.path) }
        // What is active gets nothing by it.
        let now = GrantAdministrator.now
        try requireAllowed(described.filter { $0.grant.state(at: now) != .active }.map { ($0.path, $0.grant.view, $0.grant.access) })
        return try announce(try store.restore(grants.map(\.id), by: actor), timeout)
    }

    /// Revokes, then forgets. The records are forgotten also when a mount has not confirmed: it refuses what it finds no
    /// record of. What comes back is what the mounts said to the revocation. `recorded`: called once the revocation is on disk.
    public func remove(
        _ grants: [Grant], timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil,
        recorded: (() -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        try requireOwn(grants, "removed")
        let changes = try revoke(grants, timeout: timeout, progress: progress, recorded: recorded)
        try store.remove(grants.map(\.id), by: actor)
        // Now their names are unknown instead of refused. Nothing hangs on when a mount hears of it.
        if changes.areConfirmed { _ = try? announce(grants, timeout) }
        return changes
    }

    /// Changes what is given; `expires` as `GrantStore.update` takes it. `recorded`: called once it is on disk. `.permission` when it gives more than
    /// before and the policy of the administrator does not allow it.
    public func set(
        _ grant: Grant, access: Access?, name: GrantName?, expires: Instant??, coordination: Coordination? = nil,
        timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil, recorded: (() -> Void)? = nil
    ) throws(GrantError) -> GrantChange {
        try requireOwn([grant], "changed")
        if widens(grant, access: access, expires: expires), let judge = try judge() {
            try judge.require(describe([grant])[0].path, view: grant.view, access: access ?? grant.access, by: actor)
        }
        let changed = try store.update(grant.id, access: access, name: name, expires: expires, coordination: coordination, by: actor)
        recorded?()
        return try announce([changed], timeout, progress: progress)[0]
    }
}
