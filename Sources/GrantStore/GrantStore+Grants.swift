import GrantModel

extension GrantStore {
    /// Returns all recorded grants, of one view or of all, in any state.
    ///
    /// Sorted by view and name, in the order of bytes.
    public func grants(view: ViewName? = nil) throws(GrantError) -> [Grant] {
        let kept = try keptGrants { () throws(GrantError) in try readGrants(of: nil) }
        guard let kept else { return try readGrants(of: view) }
        return view == nil ? kept : kept.filter { $0.view == view }
    }

    private func readGrants(of view: ViewName?) throws(GrantError) -> [Grant] {
        try read { (database) throws(GrantError) in
            var result: [Grant] = []
            let condition = view == nil ? "" : "WHERE view = ?"
            let parameters: [Value] = view.map { [.blob(Array($0.description.utf8))] } ?? []
            try database.query("SELECT \(GrantStore.columns) FROM grants \(condition) ORDER BY view, name", parameters) {
                (row) throws(GrantError) in
                result.append(try grant(from: row, database))
            }
            return result
        }
    }

    /// Returns all recorded grants that a mount shows, in the order of `grants(view:)`.
    public func grants(_ shown: ShownViews) throws(GrantError) -> [Grant] {
        if let view = shown.onlyView { return try grants(view: view) }
        if case .mountpoints = shown { return [] }
        return try grants().filter { shown.shows($0.view) }
    }

    /// Returns the views that have a grant in any state, in the order of their names.
    public func views() throws(GrantError) -> [ViewName] {
        try read { (database) throws(GrantError) in
            var views: [ViewName] = []
            try database.query("SELECT DISTINCT view FROM grants ORDER BY view") { (row) throws(GrantError) in
                guard let view = try? ViewName(row.text(0)) else {
                    throw StoreFailure.damaged(database.path, "a view's name makes no sense")
                }
                views.append(view)
            }
            return views
        }
    }

    /// Returns a grant, or nil if it does not exist.
    public func grant(_ id: GrantID) throws(GrantError) -> Grant? {
        try read { (database) throws(GrantError) in try find(id, in: database) }
    }

    /// Inserts a grant.
    ///
    /// - Throws: `.alreadyExists` if the view has a grant of that name, in any state.
    public func insert(_ grant: Grant, by actor: Actor) throws(GrantError) {
        try insert([grant], by: actor)
    }

    /// Inserts all grants or none, in one transaction.
    public func insert(_ grants: [Grant], by actor: Actor) throws(GrantError) {
        try write { (database) throws(GrantError) in
            for grant in grants {
                try requireFree(grant.name, in: grant.view, database)
                try add(grant, in: database)
                let path = String(decoding: grant.bookmark.path, as: UTF8.self)
                let rules = grant.rules.lines.map { ", \($0.name) \($0.patterns)" }.joined()
                let offered = grant.isOffered ? "offered " : ""
                try log(.granted, grant, actor, "\(offered)\(grant.access.rawValue) \(path)\(rules)", in: database)
            }
        }
    }

    /// Revokes the grants in one transaction, and returns them in their new state.
    ///
    /// Revoked grants stay revoked. Missing grants are skipped.
    ///
    /// - Parameter waitsForDisk: Without it the change survives only the end of processes. Used for
    ///   grants that are removed next.
    public func revoke(_ ids: [GrantID], by actor: Actor, waitsForDisk: Bool = true) throws(GrantError) -> [Grant] {
        try write(withdraws: waitsForDisk) { (database) throws(GrantError) in
            var result: [Grant] = []
            for id in ids {
                guard var grant = try find(id, in: database) else { continue }
                if grant.state != .revoked {
                    grant.state = .revoked
                    try save(grant, in: database)
                    try log(.revoked, grant, actor, in: database)
                } else if try hasRevoked(grant, actor, in: database) == false {
                    // The grant is not restored by the user who revoked it first (`restore` with
                    // `onlyOwn`).
                    try log(.revoked, grant, actor, "again", in: database)
                }
                result.append(grant)
            }
            return result
        }
    }

    /// Whether this user has revoked the grant since it was last active.
    ///
    /// Returns nil if the log does not have the revocation.
    private func hasRevoked(_ grant: Grant, _ actor: Actor, in database: Database) throws(GrantError) -> Bool? {
        let users = try revokers(of: grant.id, in: database)
        return users.isEmpty ? nil : users.contains(Int64(truncatingIfNeeded: actor.uid))
    }

    /// Returns the users who have revoked the grant since it was last active.
    ///
    /// Covers only the entries that the log still has.
    private func revokers(of id: GrantID, in database: Database) throws(GrantError) -> Set<Int64> {
        var (users, isOver): (Set<Int64>, Bool) = ([], false)
        let events = [LogEvent.revoked, .restored, .granted].map { "'\($0.rawValue)'" }.joined(separator: ", ")
        try database.query(
            "SELECT event, uid FROM log WHERE grant_id = ? AND event IN (\(events)) ORDER BY number DESC", [.blob(id.bytes)]
        ) { (row) throws(GrantError) in
            if row.text(0) != LogEvent.revoked.rawValue { isOver = true }
            if !isOver { users.insert(row.integer(1)) }
        }
        return users
    }

    /// Makes the grants active again and removes expiries that have passed.
    ///
    /// A grant that was not active gets a new activation, and is no longer only offered.
    ///
    /// - Parameters:
    ///   - renewed: Grants that get a new activation even if they are active: a mount has shut
    ///     them, and waits for one.
    ///   - onlyOwn: Restores only if this user alone has revoked each grant.
    /// - Throws: `.notFound` if a grant does not exist, `.permission` if `onlyOwn` refuses. Nothing
    ///   is changed then.
    public func restore(
        _ ids: [GrantID], renewing renewed: Set<GrantID> = [], by actor: Actor, onlyOwn: Bool = false
    ) throws(GrantError) -> [Grant] {
        let now = GrantStore.now
        return try write { (database) throws(GrantError) in
            var result: [Grant] = []
            for id in ids {
                guard var grant = try find(id, in: database) else { throw StoreFailure.noGrant(id) }
                if grant.state(at: now) != .active || (renewed.contains(id) && !onlyOwn) {
                    if onlyOwn {
                        let users = try revokers(of: id, in: database)
                        guard grant.state(at: now) == .revoked, users == [Int64(truncatingIfNeeded: actor.uid)] else {
                            throw GrantError(
                                .permission, "“\(grant.name)” is not restored", cause: "another user has revoked it, or may have",
                                advice: "root restores it")
                        }
                    }
                    grant.state = .active
                    grant.isOffered = false
                    if let expires = grant.expires, expires <= now { grant.expires = nil }
                    grant.activation &+= 1
                    try save(grant, in: database)
                    try log(.restored, grant, actor, in: database)
                }
                result.append(grant)
            }
            return result
        }
    }

    /// Removes the grants. Missing grants are skipped, and entries in the log stay.
    public func remove(_ ids: [GrantID], by actor: Actor) throws(GrantError) {
        try write(withdraws: true) { (database) throws(GrantError) in
            for id in ids {
                guard let grant = try find(id, in: database) else { continue }
                try database.query("DELETE FROM grants WHERE id = ?", [.blob(id.bytes)])
                try log(.removed, grant, actor, in: database)
            }
        }
    }

    /// Changes a grant.
    ///
    /// A later expiry does not make an expired grant active. `restore` does that. An access allows an offered grant.
    ///
    /// - Parameters:
    ///   - expires: nil keeps the expiry, `.some(nil)` removes it.
    ///   - expected: The grant that this change was decided for.
    /// - Throws: `.notFound`, `.alreadyExists`, `.usage` if the grant cannot have these rules, or `.storeUnavailable` if it is not as expected.
    public func update(
        _ id: GrantID, access: Access? = nil, name: GrantName? = nil, expires: Instant?? = nil, coordination: Coordination? = nil,
        rules: RuleChange? = nil, expecting expected: Grant? = nil, by actor: Actor
    ) throws(GrantError) -> Grant {
        let now = GrantStore.now
        return try write(withdraws: true) { (database) throws(GrantError) in
            guard var grant = try find(id, in: database) else { throw StoreFailure.noGrant(id) }
            let old = grant
            grant.state = grant.state(at: now)
            if let expected, !old.differences(to: expected).isEmpty || old.state != expected.state || grant.state != .active {
                throw GrantError(
                    .storeUnavailable, "“\(grant.name)” is not changed", cause: "another program has changed it at the same time",
                    advice: "look at it again")
            }
            if let access { (grant.access, grant.isOffered) = (access, false) }
            if let name, name != grant.name {
                try requireFree(name, in: grant.view, database)
                grant.name = name
            }
            if let expires { grant.expires = expires }
            if let coordination { grant.coordination = coordination }
            if let rules { grant.rules = try rules.result(of: grant) }
            let changes = old.differences(to: grant)
            if !changes.isEmpty {
                try save(grant, in: database)
                try log(.changed, grant, actor, changes.joined(separator: ", "), in: database)
            }
            return grant
        }
    }

    /// Marks active grants as expired if their expiry has passed at `now`.
    ///
    /// Other grants are unchanged.
    public func markExpired(_ ids: [GrantID], now: Instant, by actor: Actor) throws(GrantError) {
        try write(withdraws: true) { (database) throws(GrantError) in
            for id in ids {
                guard var grant = try find(id, in: database), grant.state == .active, grant.state(at: now) == .expired else { continue }
                grant.state = .expired
                try save(grant, in: database)
                try log(.expired, grant, actor, in: database)
            }
        }
    }

    /// Records the present paths of the same directories, in one transaction, and logs it.
    ///
    /// Skips grants that do not exist. Also skips a grant if a user has accepted another directory
    /// meanwhile, because a search for the old one must not restore it.
    public func renewBookmarks(_ renewals: [(id: GrantID, bookmark: Bookmark)], by actor: Actor) throws(GrantError) {
        try renewBookmarks(
            renewals.map { BookmarkRenewal(grant: $0.id, seen: $0.bookmark.identity, bookmark: $0.bookmark) }, by: actor)
    }

    /// Does the same for documents as well, which another file may have replaced.
    public func renewBookmarks(_ renewals: [BookmarkRenewal], by actor: Actor) throws(GrantError) {
        try write { (database) throws(GrantError) in
            for renewal in renewals {
                let bookmark = renewal.bookmark
                guard var grant = try find(renewal.grant, in: database), grant.bookmark != bookmark,
                    grant.bookmark.identity == renewal.seen,
                    bookmark.identity == renewal.seen || (grant.bookmark.document != nil && bookmark.document != nil)
                else { continue }
                if let detail = renewal.detail {
                    grant.bookmark = bookmark
                    try save(grant, in: database)
                    let path = String(decoding: bookmark.path, as: UTF8.self)
                    try log(.bookmarkMoved, grant, actor, "another file at \(path), \(detail)", in: database)
                    continue
                }
                let before = String(decoding: grant.bookmark.path, as: UTF8.self)
                grant.bookmark = bookmark
                try save(grant, in: database)
                try log(.bookmarkMoved, grant, actor, "\(before) to \(String(decoding: bookmark.path, as: UTF8.self))", in: database)
            }
        }
    }

    /// Gives the grant another directory, which a user has accepted as its replacement.
    ///
    /// Logs the change. It is a new activation, so files that were reached through the old
    /// directory stay refused.
    ///
    /// - Throws: `.notFound` if the grant does not exist, or was given another directory since
    ///   `seen` was read.
    public func rebookmark(_ seen: Grant, to bookmark: Bookmark, by actor: Actor) throws(GrantError) -> Grant {
        try write(withdraws: true) { (database) throws(GrantError) in
            guard var grant = try find(seen.id, in: database), grant.bookmark.identity == seen.bookmark.identity else {
                throw StoreFailure.noGrant(seen.id)
            }
            grant.bookmark = bookmark
            grant.activation &+= 1
            try save(grant, in: database)
            try log(
                .bookmarkReplaced, grant, actor, "accepted another directory at \(String(decoding: bookmark.path, as: UTF8.self))",
                in: database)
            return grant
        }
    }
}
