import GrantModel
import GrantViewFS

// What the looks of each second need of all grants. There may be thousands, so it is put together once after a change and not each time.
extension MountedView {
    struct Summary {
        /// Some are active and their directory is yet to be found.
        var hasMissing = false
        /// Some were let go of.
        var hasReleased = false
        /// Some expire, or have.
        var hasExpiring = false
        /// Those whose directory is open.
        var open: [Whereabouts] = []
    }

    /// A directory that is open, and where it was.
    struct Whereabouts {
        let grant: GrantID
        let scope: Scope
        let path: [UInt8]
        /// Its name is there.
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
    /// Active, and its directory is to be looked for.
    var isMissing: Bool { recorded == .active && scope == nil && released == nil }
}
