import GrantBookmarks
import Glibc
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// Granted directories that are to be found and shown. One that hangs holds up no other.
extension MountedView {
    /// A look at one grant's directory that is under way.
    struct Look: Hashable {
        let grant: GrantID
        let activation: Int64
        let isOpen: Bool
    }

    /// Which of the looks at directories may begin: those that are not under way already.
    ///
    /// Locking: call it with `state` held.
    static func claim(_ grants: [LiveGrant], _ state: inout State) -> [LiveGrant] {
        grants.filter { live in
            let look = live.look
            if state.looks[look] != nil { return false }
            state.looks[look] = .begun
            return true
        }
    }

    /// Finds the directories of active grants that have no scope, and shows them. When it returns each was looked for, if its filesystem
    /// has answered within a second; the others are shown when it does.
    ///
    /// Locking: `state`; `opening` while a scope is made.
    func openMissing() {
        let (wanted, claimed) = state.withLock { state in
            let wanted = state.isRefusing || state.isEnding || !state.summed().hasMissing ? [] : state.grants.values.filter(\.isMissing)
            return (wanted, MountedView.claim(wanted, &state))
        }
        let harvest = Harvest()
        TimedSweep.run(
            claimed, with: { BookmarkResolver() }, leaving: { self.leave($0.look) },
            { [self] live, resolver in
                let (isShown, renewal) = open(live.grant, resolver)
                let shown = isShown ? live.grant.id : nil
                if !harvest.add(shown, renewal) { bring(shown.map { [$0] } ?? [], renewal.map { [$0] } ?? []) }
                endLook(live.look)
            })
        let (shown, renewals) = harvest.end()
        bring(shown, renewals)
        awaitOthers(wanted.map(\.look))
    }

    /// Makes the kernel look anew where names were shown, and records what was found elsewhere.
    private func bring(_ shown: [GrantID], _ renewals: [Renewal]) {
        if !shown.isEmpty {
            opening.withLock { _ in files.markOverlaps() }
            files.invalidateVirtualDirectories()
            claims?.reconsider(until: 0)
            claims?.seatAnew(afterOpening: shown)
        }
        record(renewals)
    }

    /// What other threads look for just now is shown as well when this returns, unless it hangs.
    private func awaitOthers(_ looks: [Look]) {
        let deadline = Clock.monotonic + 1_000_000_000
        while Clock.monotonic < deadline {
            let isBusy = state.withLock { state in looks.contains { state.looks[$0] == .begun } }
            if !isBusy { return }
            usleep(1_000)
        }
    }

    func leave(_ look: Look) {
        state.withLock { state in
            guard state.looks[look] != nil else { return }
            state.looks[look] = .leftBehind
            hideIfAbsent(look, state)
        }
    }

    func endLook(_ look: Look) {
        state.withLock { state in
            state.looks[look] = nil
            hideIfAbsent(look, state)
        }
    }

    /// A grant that is active again and whose directory is not there is unknown, as other missing ones are, and refused no longer.
    ///
    /// Locking: call it with `state` held.
    private func hideIfAbsent(_ look: Look, _ state: State) {
        guard !state.isRefusing, let live = state.grants[look.grant], live.recorded == .active, live.scope == nil,
            live.grant.activation == look.activation, case .refused = files.names.place(live.path)
        else { return }
        files.names.set(live.path, nil)
    }

    /// Whether it is shown now, and what is to be recorded.
    private func open(_ grant: Grant, _ resolver: BookmarkResolver) -> (Bool, Renewal?) {
        let found = resolver.resolve(grant.bookmark)
        let (finding, renewed) = (found.finding, found.renewed)
        var scope: Scope?
        let path = found.path
        if finding.isUsable, grant.bookmark.document != nil {
            if let path, let file = found.takeDescriptor() { scope = makeScope(document: grant, file, at: path) }
        } else if finding.isUsable, let directory = found.takeDescriptor() {
            let number = directory.release()
            scope = opening.withLock { _ in
                try? files.makeScope(
                    for: grant.id, activation: grant.activation, readOnly: grant.access == .readOnly,
                    directory: FileDescriptor(owning: number), crossesMounts: options.submounts)
            }
        }
        let (isShown, task) = state.withLock { state -> (Bool, (() -> Void)?) in
            guard var live = state.grants[grant.id] else { return (false, discard(scope, &state)) }
            if live.finding != finding, finding == .replaced { note(replaced: grant, state.store) }
            live.finding = finding
            // The store may have changed meanwhile; then the next reconciliation, which is on its way, opens it.
            let isStillMeant =
                !state.isRefusing && !state.isEnding && live.scope == nil && live.released == nil && live.recorded == .active
                && live.grant.activation == grant.activation
                && live.grant.name == grant.name && live.grant.access == grant.access
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
            let what = "changes that others make in “\(grant.name)” beside \(place) are told by nobody"
            let why = "and cache=exclusive does not look for them: mount with cache=shared where somebody may make some"
            SystemLog.write(.warning, Terminal.visible("\(what), \(why)"), fields)
        }
        let isSuccessor = renewed.map { $0.identity != grant.bookmark.identity } ?? false
        guard finding == .moved || isSuccessor, let renewed else { return (isShown, nil) }
        var renewal = Renewal(grant: grant.id, old: grant.bookmark, new: renewed)
        if isSuccessor { renewal.replacedThroughGrant = false }
        return (isShown, renewal)
    }

    /// A scope that nobody is to see. Returns the rest of its end, to be run without the lock.
    private func discard(_ scope: Scope?, _ state: inout State) -> (() -> Void)? {
        guard let scope else { return nil }
        files.shut(scope, .all)
        state.closed.append(scope)
        let files = files
        return { _ = BackgroundTask { _ = files.finish(scope, .all, patience: 0) } }
    }

    /// A directory that was replaced is said.
    private func note(replaced grant: Grant, _ store: GrantStore) {
        do throws(GrantError) {
            try store.append(.bookmarkReplaced, view: grant.view, grant: grant.id, name: grant.name, by: actor)
        } catch {
            SystemLog.write(.error, Terminal.visible(error.description), fields)
        }
    }
}

extension MountedView.LiveGrant {
    var look: MountedView.Look { MountedView.Look(grant: grant.id, activation: grant.activation, isOpen: scope != nil) }
}
