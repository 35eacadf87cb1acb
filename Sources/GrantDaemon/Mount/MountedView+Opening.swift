import GrantBookmarks
import Glibc
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// Finds and shows granted directories. One that hangs does not delay the others.
extension MountedView {
    /// A lookup of one grant's directory that is in progress.
    struct DirectoryLookup: Hashable {
        let grant: GrantID
        let activation: Int64
        let isOpen: Bool
    }

    /// Marks the lookups of these grants as begun. Returns the grants whose lookup was not in progress already.
    ///
    /// Locking: call it with `state` held.
    static func claim(_ grants: [LiveGrant], _ state: inout State) -> [LiveGrant] {
        grants.filter { live in
            let lookup = live.lookup
            if state.lookups[lookup] != nil { return false }
            state.lookups[lookup] = .begun
            return true
        }
    }

    /// Finds the directories of active grants that have no scope, and shows them. It waits a second
    /// at most for each filesystem. Directories whose filesystem answers later are shown then.
    ///
    /// Locking: `state` is held for a look, and `opening` while a scope is made.
    func openMissing() {
        let (wanted, claimed) = state.withLock { state in
            let wanted = state.isRefusing || state.isEnding || !state.summed().hasMissing ? [] : state.grants.values.filter(\.isMissing)
            return (wanted, MountedView.claim(wanted, &state))
        }
        let results = RoundResults()
        TimedSweep.run(
            claimed, with: { BookmarkResolver() }, leaving: { self.leave($0.lookup) },
            { [self] live, resolver in
                let (isShown, renewal) = open(live.grant, resolver)
                let shown = isShown ? live.grant.id : nil
                if !results.add(shown, renewal) { bring(shown.map { [$0] } ?? [], renewal.map { [$0] } ?? []) }
                endLookup(live.lookup)
            })
        let (shown, renewals) = results.end()
        bring(shown, renewals)
        awaitOthers(wanted.map(\.lookup))
    }

    /// Invalidates the kernel's caches of the root after grants were shown, and records renewed bookmarks.
    private func bring(_ shown: [GrantID], _ renewals: [Renewal]) {
        if !shown.isEmpty {
            let views = self.shown.onlyView == nil ? state.withLock { $0.grants.mapValues(\.grant.view) } : [:]
            let scopes = state.withLock { state in
                let grants = state.grants.values.filter { $0.scope != nil }
                return grants.sorted { ($0.grant.created, $0.grant.id) < ($1.grant.created, $1.grant.id) }.compactMap(\.scope)
            }
            opening.withLock { _ in
                files.numberFilesystems(of: scopes)
                files.markOverlaps(views: views)
            }
            files.invalidateVirtualDirectories()
            claims?.rebind(until: 0)
            claims?.relocatePresenters(afterOpening: shown)
        }
        record(renewals)
    }

    /// Waits until the lookups that other threads have begun are finished, or for a second.
    private func awaitOthers(_ lookups: [DirectoryLookup]) {
        let deadline = Clock.monotonic + 1_000_000_000
        while Clock.monotonic < deadline {
            let isBusy = state.withLock { state in lookups.contains { state.lookups[$0] == .begun } }
            if !isBusy { return }
            usleep(1_000)
        }
    }

    func leave(_ lookup: DirectoryLookup) {
        state.withLock { state in
            guard state.lookups[lookup] != nil else { return }
            state.lookups[lookup] = .leftBehind
            hideIfAbsent(lookup, state)
        }
    }

    func endLookup(_ lookup: DirectoryLookup) {
        state.withLock { state in
            state.lookups[lookup] = nil
            hideIfAbsent(lookup, state)
        }
    }

    /// Removes the refused name of a grant that is active again and whose directory is missing, so that it is unknown like others.
    ///
    /// Locking: call it with `state` held.
    private func hideIfAbsent(_ lookup: DirectoryLookup, _ state: State) {
        guard !state.isRefusing, let live = state.grants[lookup.grant], live.recorded == .active, live.scope == nil,
            live.grant.activation == lookup.activation, case .refused = files.names.place(live.path)
        else { return }
        files.names.set(live.path, nil)
    }

    /// Resolves the bookmark and shows the grant. Returns whether it is shown now, and the renewed bookmark to record.
    private func open(_ grant: Grant, _ resolver: BookmarkResolver) -> (Bool, Renewal?) {
        let found = resolver.resolve(grant.bookmark)
        let (finding, renewed) = (found.finding, found.renewed)
        var scope: Scope?
        let path = found.path
        if finding.isUsable, grant.bookmark.document != nil {
            if let path, let file = found.takeDescriptor() { scope = makeScope(document: grant, file, at: path) }
        } else if finding.isUsable, let directory = found.takeDescriptor() {
            scope = makeScope(grant, directory)
        }
        let (isShown, task) = state.withLock { state -> (Bool, (() -> Void)?) in
            guard var live = state.grants[grant.id] else { return (false, discard(scope, &state)) }
            if live.finding != finding, finding == .replaced { note(replaced: grant, state.store) }
            live.finding = finding
            // If the store changed meanwhile, the next reconciliation, which is due already, opens it.
            let isStillMeant =
                !state.isRefusing && !state.isEnding && live.scope == nil && live.released == nil && live.recorded == .active
                && live.grant.activation == grant.activation
                && live.grant.name == grant.name && live.grant.access == grant.access && live.grant.rules == grant.rules
                && live.grant.isOffered == grant.isOffered
            guard let scope, isStillMeant else {
                state.grants[grant.id]?.finding = finding
                return (false, discard(scope, &state))
            }
            live.scope = scope
            state.grants[grant.id] = live
            if grant.fleetActivation != nil { fence.guardScope(scope) }
            state.forgetEnded(of: grant.id)
            files.names.set(live.path, .open(scope))
            return (true, nil)
        }
        task?()
        if isShown, let scope, files.hasUntoldChanges(scope) {
            let what = "changes that others make in “\(grant.name)” beside \(place) are not reported"
            let why = "and cache=exclusive does not look for them: mount with cache=shared if others make changes"
            SystemLog.write(.warning, Terminal.visible("\(what), \(why)"), fields)
        }
        let isSuccessor = renewed.map { $0.identity != grant.bookmark.identity } ?? false
        guard finding == .moved || isSuccessor, let renewed else { return (isShown, nil) }
        var renewal = Renewal(grant: grant.id, old: grant.bookmark, new: renewed)
        if isSuccessor { renewal.replacedThroughGrant = false }
        return (isShown, renewal)
    }

    /// Makes the scope of a directory that was found, or nil when it cannot be.
    private func makeScope(_ grant: Grant, _ directory: consuming FileDescriptor) -> Scope? {
        var copy: Int32?
        do throws(Errno) {
            if let owners { copy = try owners.open(directory).release() }
        } catch {
            noteUnmapped(grant, because: error == Errno(EINVAL) ? "its filesystem cannot do that" : error.description)
            return nil
        }
        let (number, mapped) = (directory.release(), copy)
        return opening.withLock { _ in
            try? files.makeScope(
                for: grant.id, activation: grant.activation, readOnly: grant.access == .readOnly,
                directory: FileDescriptor(owning: number), copy: mapped.map { FileDescriptor(owning: $0) },
                crossesMounts: options.submounts, rules: grant.rules, isOffered: grant.isOffered)
        }
    }

    /// Logs once for each activation that a grant is not shown because its files cannot have other owners.
    func noteUnmapped(_ grant: Grant, because cause: String) {
        let isNew = state.withLock { $0.unmapped.updateValue(grant.activation, forKey: grant.id) != grant.activation }
        if !isNew { return }
        let what = "“\(grant.name)” is not shown: its files cannot have the owners of -o map, \(cause)"
        SystemLog.write(.error, Terminal.visible("\(what) (grant it in another view)"), fields)
    }

    /// Closes a scope that was never shown. Returns the rest of the work, to be run without the lock.
    private func discard(_ scope: Scope?, _ state: inout State) -> (() -> Void)? {
        guard let scope else { return nil }
        files.shut(scope, .all)
        state.closed.append(scope)
        let files = files
        return { _ = BackgroundTask { _ = files.finish(scope, .all, patience: 0) } }
    }

    /// Logs that a granted directory was replaced.
    private func note(replaced grant: Grant, _ store: GrantStore) {
        do throws(GrantError) {
            try store.append(.bookmarkReplaced, view: grant.view, grant: grant.id, name: grant.name, by: actor)
        } catch {
            SystemLog.write(.error, Terminal.visible(error.description), fields)
        }
    }
}

extension MountedView.LiveGrant {
    var lookup: MountedView.DirectoryLookup {
        MountedView.DirectoryLookup(grant: grant.id, activation: grant.activation, isOpen: scope != nil)
    }
}
