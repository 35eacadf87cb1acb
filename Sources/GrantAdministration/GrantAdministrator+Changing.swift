import GrantModel
import GrantStore
import LinuxFS

extension GrantAdministrator {
    /// Withdraws the grants: on disk first, then in every mount. When the store cannot be written the mounts shut the grants all
    /// the same, and the error says that nothing was recorded. `progress`: called on this thread while it takes long.
    ///
    /// `endsHolders`: of a mount whose daemon has died, the processes that hold something of it are killed, because nothing else makes the kernel
    /// forget. What they hold may be of any grant of that mount.
    public func revoke(
        _ grants: [Grant], timeout: Double = standardTimeout, endsHolders: Bool = false, progress: ((CoordinationProgress) -> Void)? = nil
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
        return try announce(withdrawn, timeout, withdraws: true, endsHolders: endsHolders, progress: progress)
    }

    /// The grants, of every view and in whatever state, through which the directory can be reached: of itself, of one above
    /// it, of one below it. A directory that is gone, or whose filesystem does not answer, is compared by the path it had.
    public func grants(reaching directory: [UInt8]) throws(GrantError) -> [Grant] {
        let table = try Placement.currentTable()
        let looked = lookout.ask([.canonical(directory), .bookmark(directory: directory)])
        var path = CanonicalPath.plain(directory)
        if case .canonical(let canonical) = looked[0] { path = canonical }
        var own: Bookmark?
        if case .bookmarked(let named) = looked[1] { own = named.bookmark }
        let place = Place(path, in: table)
        return describe(try store.grants()).filter { described in
            let bookmark = described.grant.bookmark
            if let own, own.filesystem == bookmark.filesystem, own.identity == bookmark.identity { return true }
            return Place(described.path, in: table).meets(place)
        }.map(\.grant)
    }

    /// Makes the grants active again. `.invalidDirectory` when one of them now holds a mount of the store, or lies in one.
    public func restore(_ grants: [Grant], timeout: Double = standardTimeout) throws(GrantError) -> [GrantChange] {
        let placement = try Placement(store: store)
        for grant in describe(grants) where grant.finding.isUsable || grant.isSilent { try placement.check(grant.path) }
        return try announce(try store.restore(grants.map(\.id), by: actor), timeout)
    }

    /// Revokes, then forgets. The records are forgotten also when a mount has not confirmed: it refuses what it finds no
    /// record of. What comes back is what the mounts said to the revocation.
    public func remove(
        _ grants: [Grant], timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        let changes = try revoke(grants, timeout: timeout, progress: progress)
        try store.remove(grants.map(\.id), by: actor)
        // Now their names are unknown instead of refused. Nothing hangs on when a mount hears of it.
        if changes.areConfirmed { _ = try? announce(grants, timeout) }
        return changes
    }

    /// Changes what is given; `expires` as `GrantStore.update` takes it.
    public func set(
        _ grant: Grant, access: Access?, name: GrantName?, expires: Instant??, coordination: Coordination? = nil,
        timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> GrantChange {
        let changed = try store.update(grant.id, access: access, name: name, expires: expires, coordination: coordination, by: actor)
        return try announce([changed], timeout, progress: progress)[0]
    }
}
