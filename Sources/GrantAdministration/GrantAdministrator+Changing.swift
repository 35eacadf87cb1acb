import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Makes the grants active again. Throws `.invalidDirectory` if one of them now contains or
    /// lies in a mount of the store, `.permission` if the administrator's policy denies it.
    ///
    /// `onlyOwn`: for a user who may revoke in this store, and restores grants that the same user
    /// has revoked. The policy was asked when it was granted. Forbidden directories stay refused.
    public func restore(
        _ grants: [Grant], timeout: Double = standardTimeout, onlyOwn: Bool = false
    ) throws(GrantError) -> [GrantChange] {
        try requireOwn(grants, "restored")
        let placement = try LoopCheck(store: store)
        let described = describe(grants)
        for grant in described where grant.finding.isUsable || grant.isUnresponsive { try placement.check(grant.path) }
        // Active grants gain nothing.
        let now = GrantAdministrator.now
        try requireAllowed(
            described.filter { $0.grant.state(at: now) != .active }.map { ($0.path, $0.grant.view, $0.grant.access) },
            to: onlyOwn ? 0 : actor.uid)
        let active = described.filter { $0.grant.state(at: now) == .active }.map(\.grant)
        for grant in described where grant.grant.state(at: now) != .active {
            try ObeyedFiles.check(grant.path, access: grant.grant.access)
        }
        return try broadcast(
            try store.restore(grants.map(\.id), renewing: shutUnrecorded(active), by: actor, onlyOwn: onlyOwn), timeout)
    }

    /// Those active grants that a mount has shut because their withdrawal could not be recorded: it opens them again only when the
    /// store records something new.
    private func shutUnrecorded(_ grants: [Grant]) throws(GrantError) -> Set<GrantID> {
        if grants.isEmpty { return [] }
        let store = store
        let records = try store.mounts().filter { record in grants.contains { record.shows($0.view) } }
        let ids = Set(grants.map(\.id))
        let shut = inParallel(records) { record -> [GrantID] in
            let answer = Daemons.ask(record, .status, of: store, deadline: Clock.deadline(seconds: 2))
            guard case .success(.status(let status)) = answer else { return [] }
            return status.grants.filter { ids.contains($0.id) && $0.state == .revoked }.map(\.id)
        }
        return Set(shut.joined())
    }

    /// Revokes the grants, then removes their records, even if a mount has not confirmed: a mount refuses grants without a record.
    /// Returns the mounts' answers to the revocation. `recorded` is called once the revocation is on disk.
    public func remove(
        _ grants: [Grant], timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil,
        recorded: (() -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        try requireOwn(grants, "removed")
        let changes = try revoke(grants, timeout: timeout, progress: progress, recorded: recorded)
        try store.remove(grants.map(\.id), by: actor)
        // Now their names are unknown instead of refused. It does not matter when a mount is told.
        if changes.areConfirmed { _ = try? broadcast(grants, timeout) }
        return changes
    }

    /// Changes a grant. `expires` is as for `GrantStore.update`. `recorded` is called once the
    /// change is on disk. It throws `.permission` if it gives more than before and the
    /// administrator's policy denies it, and `.usage` for rules that the grant cannot have.
    public func set(
        _ grant: Grant, access: Access?, name: GrantName?, expires: Instant??, coordination: Coordination? = nil,
        rules: RuleChange? = nil, timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil,
        recorded: (() -> Void)? = nil
    ) throws(GrantError) -> GrantChange {
        try change(grant, access, name, expires, coordination, rules, expecting: nil, timeout, progress, recorded)
    }

    /// Does the same. It changes nothing and throws `.storeUnavailable` if the grant was changed since it was read.
    package func setUnchanged(
        _ grant: Grant, access: Access?, expires: Instant??, rules: RuleChange? = nil
    ) throws(GrantError) -> GrantChange {
        try change(grant, access, nil, expires, nil, rules, expecting: grant, Self.standardTimeout, nil, nil)
    }

    private func change(
        _ grant: Grant, _ access: Access?, _ name: GrantName?, _ expires: Instant??, _ coordination: Coordination?, _ rules: RuleChange?,
        expecting expected: Grant?, _ timeout: Double, _ progress: ((CoordinationProgress) -> Void)?, _ recorded: (() -> Void)?
    ) throws(GrantError) -> GrantChange {
        try requireOwn([grant], "changed")
        var rules = rules
        let isBound = if rules == nil { false } else { try self.isBound(grant.view) }
        if isBound, let change = rules { rules = try change.added(to: grant.rules) }
        let expected = isBound ? expected ?? grant : expected
        // Before the policy and the disk are asked.
        if let rules { _ = try rules.result(of: grant) }
        if try widens(grant, access: access, expires: expires, rules: rules), let judge = try judge() {
            try judge.require(describe([grant])[0].path, view: grant.view, access: access ?? grant.access, by: actor)
        }
        if let access, access != grant.access || grant.isOffered { try ObeyedFiles.check(describe([grant])[0].path, access: access) }
        let changed = try store.update(
            grant.id, access: access, name: name, expires: expires, coordination: coordination, rules: rules,
            expecting: expected, by: actor)
        recorded?()
        return try broadcast([changed], timeout, progress: progress)[0]
    }

    /// Whether the view is that of `grantfs bwrap`, whose rules stand for options of its command line.
    private func isBound(_ view: ViewName) throws(GrantError) -> Bool {
        let mounts = try store.mounts(view: view)
        return mounts.contains { if case .bound = $0.shown { true } else { false } }
    }
}

extension RuleChange {
    /// Returns the change that adds these patterns to a grant's. Throws `.usage` if they would take some back.
    fileprivate func added(to rules: GrantRules) throws(GrantError) -> RuleChange {
        if [hide, protect, only].contains(where: { $0?.isEmpty == true }) {
            throw GrantError(
                .usage, "the rules of this grant cannot be removed", cause: "they stand for options of bubblewrap's command line",
                advice: "start the program again with other options")
        }
        return RuleChange(
            try rules.narrowed(by: GrantRules(hide: hide ?? [], protect: protect ?? [], only: only ?? [])))
    }
}
