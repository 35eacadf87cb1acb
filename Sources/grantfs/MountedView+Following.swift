import Bookmarks
import Glibc
import GrantModel
import GrantStore
import LinuxFS
import ViewFS

// Granted directories on their way through the filesystem.
extension MountedView {
    /// Looks where each open directory is now. One that was removed or lies in a Trash loses its name, and what is held of it goes on
    /// as natively; one that came out of a Trash has its name again; one that moved is recorded at its new place.
    func followDirectories() {
        let open = state.withLock { state in MountedView.claim(state.grants.values.filter { $0.scope != nil }, &state) }
        Round.run(
            open, with: {}, leaving: { self.leave($0.look) },
            { [self] live, _ in
                if let scope = live.scope { follow(live.grant, scope) }
                endLook(live.look)
            })
    }

    private func follow(_ grant: Grant, _ scope: Scope) {
        if files.isRemoved(scope) {
            show(grant, scope, false)
        } else if let path = files.path(of: scope) {
            let isTrashed = Trash.holds(path)
            show(grant, scope, !isTrashed)
            if !isTrashed, path != grant.bookmark.path { renew(grant, scope, at: path) }
        }
    }

    /// Takes the name away, or gives it back.
    private func show(_ grant: Grant, _ scope: Scope, _ isShown: Bool) {
        let changed = state.withLock { state -> Bool in
            guard let live = state.grants[grant.id], live.scope === scope, live.grant.name == grant.name else { return false }
            switch files.root.place(grant.name) {
            case .open: if isShown { return false }
            case .refused: return false
            case nil: if !isShown { return false }
            }
            state.grants[grant.id]?.finding = isShown ? .ok : .missing
            files.root.set(grant.name, isShown ? .open(scope) : nil)
            return true
        }
        if changed { files.forgetRootNames([grant.name]) }
    }

    /// Records where the directory is, so that `list` and the next mount know. The scope's own path tells where to look; what is
    /// there is compared with the bookmark.
    private func renew(_ grant: Grant, _ scope: Scope, at path: [UInt8]) {
        guard let there = try? FileDescriptor.open(path, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW) else { return }
        let found = BookmarkResolver().resolve(grant.bookmark, holding: there)
        guard found.finding.isUsable, let renewed = found.renewed else { return }
        let store = state.withLock { $0.store }
        do throws(GrantError) {
            try store.renewBookmark(grant.id, to: renewed, finding: .moved, by: actor)
        } catch {
            // The next look tries again.
            return
        }
        state.withLock { state in
            guard let live = state.grants[grant.id], live.scope === scope, live.grant.bookmark == grant.bookmark else { return }
            state.grants[grant.id]?.grant.bookmark = renewed
            state.grants[grant.id]?.finding = .moved
        }
    }
}
