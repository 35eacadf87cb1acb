import GrantModel
import GrantViewFS

// The data of all grants that the periodic checks need. There may be thousands, so it is computed
// once after each change.
extension MountedView {
    struct Summary {
        /// Whether some are active and have no directory yet.
        var hasMissing = false
        /// Whether some are released.
        var hasReleased = false
        /// Whether some expire, or have expired.
        var hasExpiring = false
        /// Those whose directory is open.
        var open: [Whereabouts] = []
    }

    /// A directory that is open, and where it was.
    struct Whereabouts {
        let grant: GrantID
        let scope: Scope
        let path: [UInt8]
        /// Whether its name exists.
        let isShown: Bool
    }
}

extension MountedView.State {
    /// Locking: call it with `state` held.
    mutating func summed() -> MountedView.Summary {
        if let summary { return summary }
        var sums = MountedView.Summary()
        for live in grants.values {
            sums.hasMissing = sums.hasMissing || live.isMissing
            sums.hasReleased = sums.hasReleased || live.released != nil
            sums.hasExpiring = sums.hasExpiring || live.grant.expires != nil
            guard let scope = live.scope else { continue }
            sums.open.append(
                MountedView.Whereabouts(
                    grant: live.grant.id, scope: scope, path: live.grant.bookmark.path, isShown: live.finding.isUsable))
        }
        summary = sums
        return sums
    }
}

extension MountedView.LiveGrant {
    /// Whether it is active and its directory must be searched for.
    var isMissing: Bool { recorded == .active && scope == nil && released == nil }
}
