import GrantBookmarks
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// Granted directories on their way through the filesystem.
extension MountedView {
    /// So many rounds until each directory was looked at, whatever its descriptor says.
    private static let turns: UInt64 = 64

    /// Looks where each open directory is now. One that was removed or lies in a Trash loses its name, and what is held of it goes on
    /// as natively; one that came out of a Trash has its name again; one that moved is recorded at its new place.
    ///
    /// Most are where they were, which the kernel says without asking their filesystems, or has not said anything to the contrary. `turn`:
    /// counts the rounds.
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
        let harvest = Harvest()
        TimedSweep.run(
            open, with: { BookmarkResolver() }, leaving: { self.leave($0.look) },
            { [self] live, resolver in
                if let scope = live.scope, let renewal = follow(live.grant, scope, resolver), !harvest.add(nil, renewal) {
                    record([renewal])
                }
                endLook(live.look)
            })
        record(harvest.end().renewals)
    }

    /// What is to be recorded.
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
        // The scope's own path tells where to look; what is there is compared with the bookmark.
        guard let there = try? FileDescriptor.open(path, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW) else { return nil }
        let found = resolver.resolve(grant.bookmark, holding: there)
        guard found.finding.isUsable, let renewed = found.renewed else { return nil }
        return Renewal(grant: grant.id, old: grant.bookmark, new: renewed)
    }

    /// Takes the name away, or gives it back.
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
