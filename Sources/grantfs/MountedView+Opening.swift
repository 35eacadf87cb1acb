import Bookmarks
import Glibc
import GrantModel
import GrantStore
import LinuxFS
import ViewFS

// Giving: the directories of active grants are found, and shown.
extension MountedView {
    /// Finds the directories of active grants that have no scope, and shows them.
    ///
    /// Locking: `opening`, which no withdrawal waits for.
    func openMissing() {
        opening.withLock { _ in
            let wanted = state.withLock { state in
                state.isRefusing
                    ? [] : state.grants.values.filter { $0.recorded == .active && $0.scope == nil && $0.released == nil }.map(\.grant)
            }
            if wanted.isEmpty { return }
            let resolver = BookmarkResolver()
            var names: [GrantName] = []
            for grant in wanted where open(grant, resolver) { names.append(grant.name) }
            if !names.isEmpty {
                files.markOverlaps()
                files.forgetRootNames(names)
            }
        }
    }

    private func open(_ grant: Grant, _ resolver: BookmarkResolver) -> Bool {
        let found = resolver.resolve(grant.bookmark)
        let (finding, renewed) = (found.finding, found.renewed)
        var scope: Scope?
        if finding.isUsable, let directory = found.takeDescriptor() {
            scope = try? files.makeScope(
                for: grant.id, activation: grant.activation, readOnly: grant.access == .readOnly, directory: directory,
                crossesMounts: options.submounts)
        }
        let (isShown, task) = state.withLock { state -> (Bool, (() -> Void)?) in
            guard var live = state.grants[grant.id] else { return (false, discard(scope, &state)) }
            if live.finding != finding, finding == .moved || finding == .replaced {
                note(finding, grant, renewed, state.store)
            }
            live.finding = finding
            // The store may have changed meanwhile; then the next reconciliation, which is on its way, opens it.
            let isStillMeant =
                !state.isRefusing && live.scope == nil && live.released == nil && live.recorded == .active
                && live.grant.activation == grant.activation
                && live.grant.name == grant.name && live.grant.access == grant.access
            guard let scope, isStillMeant else {
                state.grants[grant.id]?.finding = finding
                return (false, discard(scope, &state))
            }
            live.scope = scope
            state.grants[grant.id] = live
            state.closings[grant.id] = nil
            files.root.set(grant.name, .open(scope))
            return (true, nil)
        }
        task?()
        return isShown
    }

    /// A scope that nobody is to see. Returns the rest of its end, to be run without the lock.
    private func discard(_ scope: Scope?, _ state: inout State) -> (() -> Void)? {
        guard let scope else { return nil }
        files.shut(scope, .all)
        state.closed.append(scope)
        let files = files
        return { _ = BackgroundTask { _ = files.finish(scope, .all, patience: 0) } }
    }

    /// A followed bookmark is renewed by itself; a directory that was replaced is said.
    private func note(_ finding: BookmarkFinding, _ grant: Grant, _ renewed: Bookmark?, _ store: GrantStore) {
        do throws(GrantError) {
            if let renewed {
                try store.renewBookmark(grant.id, to: renewed, finding: finding, by: actor)
            } else if finding == .replaced {
                try store.append(.bookmarkReplaced, view: view, grant: grant.id, name: grant.name, by: actor)
            }
        } catch {
            Terminal.report(error)
        }
    }
}
