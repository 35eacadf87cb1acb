import GrantBookmarks
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Follows granted directories that are moved or removed.
extension MountedView {
    /// The number of rounds within which every directory is checked, even if its descriptor shows no change.
    private static let turns: UInt64 = 64

    /// Finds where each open directory is now. One that was removed or moved to a Trash loses its name, and open files in it keep working, as
    /// natively. One that was restored from a Trash gets its name back. The new path of one that moved is recorded.
    ///
    /// Most directories have not moved. The kernel tells that without asking their filesystems.
    /// `turn` is the number of the round.
    func followDirectories(turn: UInt64) {
        let moves = files.directoryMoves
        let suspects = state.withLock { $0.summed().open }.filter { place in
            !place.isShown || place.grant.low % MountedView.turns == turn % MountedView.turns
                || !files.isStill(place.scope, at: place.path, moves: moves)
        }.map(\.grant)
        if suspects.isEmpty { return }
        let open = state.withLock { state in
            MountedView.claim(suspects.compactMap { state.grants[$0] }.filter { $0.scope != nil }, &state)
        }
        let results = RoundResults()
        TimedSweep.run(
            open, with: { BookmarkResolver() }, leaving: { self.leave($0.lookup) },
            { [self] live, resolver in
                if let scope = live.scope, let renewal = follow(live.grant, scope, resolver), !results.add(nil, renewal) {
                    record([renewal])
                }
                endLookup(live.lookup)
            })
        record(results.end().renewals)
    }

    /// Checks one directory. Returns the renewed bookmark to record, or nil if there is none.
    private func follow(_ grant: Grant, _ scope: Scope, _ resolver: BookmarkResolver) -> Renewal? {
        if grant.bookmark.document != nil { return followDocument(grant, scope, resolver) }
        if files.isRemoved(scope) {
            show(grant, scope, false)
            return nil
        }
        guard let path = files.path(of: scope) else { return nil }
        let isTrashed = Trash.holds(path)
        show(grant, scope, !isTrashed)
        if isTrashed || path == grant.bookmark.path { return nil }
        // The path comes from the scope's descriptor. The directory there is compared with the
        // bookmark.
        guard let there = try? FileDescriptor.open(path, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW) else { return nil }
        let found = resolver.resolve(grant.bookmark, holding: there)
        guard found.finding.isUsable, let renewed = found.renewed else { return nil }
        return Renewal(grant: grant.id, old: grant.bookmark, new: renewed)
    }

    /// Removes the grant's name, or restores it.
    func show(_ grant: Grant, _ scope: Scope, _ isShown: Bool) {
        let changed = state.withLock { state -> Bool in
            guard let live = state.grants[grant.id], live.scope === scope, live.grant.name == grant.name else { return false }
            switch files.names.place(live.path) {
            case .open: if isShown { return false }
            case .refused: return false
            case nil: if !isShown { return false }
            }
            state.grants[grant.id]?.finding = isShown ? .ok : .missing
            files.names.set(live.path, isShown ? .open(scope) : nil)
            return true
        }
        if changed { files.invalidateVirtualDirectories() }
    }
}
