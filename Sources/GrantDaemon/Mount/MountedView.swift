import GrantBookmarks
import GrantCommandLine
import GrantControl
import Glibc
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem
import GrantViewFS
import Synchronization

/// Applies the store's changes to one mount: new, removed, renamed grants, and changes of their access.
///
/// Withdrawals come first and access no granted directory, so a filesystem that hangs does not delay them. Directories are opened
/// afterwards, and one that hangs is skipped.
///
/// Locking: `state` and `opening` are rank 1. `state` is held for table changes and for reading the
/// store, never while a directory is inspected, a scope is closed or the kernel is notified.
final class MountedView: @unchecked Sendable {
    // Safe to share: mutable state is behind locks, or set once before it is shared.
    let shown: ShownViews
    /// Absolute, canonical.
    let mountpoint: [UInt8]
    let options: MountOptions
    let files: ViewFS
    /// See `MountOptions.owners`.
    let owners: OwnerNamespace?
    let since: Instant
    let actor = Actor.current()
    let state: Lock<State>
    /// Scopes are made by one thread at a time.
    let opening = Lock(())
    /// The mount itself, once it is made.
    let identity = Lock<MountIdentity?>(nil)
    /// The workplaces of documents' scopes.
    let workplaces = Lock<[(scope: Scope, workplace: DocumentWorkplace)]>([])
    /// Threads that end workplaces.
    let endingWorkplaces = Atomic<Int>(0)
    /// The scopes whose document was not at its path at the last check.
    let documentsUnderWay = Lock<Set<UInt32>>([])
    /// The claims on the files of the mount. Set once, before the first grant is read.
    nonisolated(unsafe) var claims: ClaimService?
    /// Shuts the fleet's grants when their lease expires.
    let fence: FleetFence

    struct State {
        var store: GrantStore
        var grants: [GrantID: LiveGrant] = [:] { didSet { summary = nil } }
        /// nil after a change: see `summed`.
        var summary: Summary?
        /// Closed scopes of which the kernel still has nodes.
        var closed: [Scope] = []
        /// The withdrawals from each grant: the last one, and those before it that have not ended.
        var pendingWithdrawals: [GrantID: [PendingWithdrawal]] = [:]
        var counts = MountCounts()
        /// Grants that are shut though the store could not record it, and the activation that this applies to.
        var shutUnrecorded: [GrantID: Int64] = [:]
        /// Lookups of directories that are in progress.
        var lookups: [DirectoryLookup: LookupState] = [:]
        /// Whether a grant's coordination has changed, and claims have not been adapted yet.
        var changesCoordination = false
        /// Grants that cannot be shown with other owners (`-o map`), and the activation that the log has it of.
        var unmapped: [GrantID: Int64] = [:]
        /// Why the store cannot be read: everything is refused until it can.
        var failure: GrantError?
        /// Whether the mount ends, so that nothing is shown any more: see `end`.
        var isEnding = false
        /// Refusals of closed scopes that the log does not have yet.
        var unwritten: [MountedView.Refusal] = []
        var isRefusing: Bool { failure != nil }
        /// Whether the store's file was written to and could not be reopened yet: see `reopen`.
        var wantsReopening = false
    }

    /// A grant as this mount sees it.
    struct LiveGrant {
        var grant: Grant
        /// The path of its name in the mount.
        var path: ShownPath
        var scope: Scope?
        var finding: BookmarkFinding = .missing
        /// The state with an expiry that has passed.
        var recorded: RecordedState
        /// Set when released: the grant is not opened again until this mount of its filesystem is gone.
        var released: ReleasedMount?
        /// Whether it is a fleet grant whose lease has expired: it is refused until the lease is
        /// renewed, even if it is recorded as active.
        var isFenced = false
    }

    enum LookupState {
        case begun
        /// Its filesystem does not answer, and no thread waits for it any more.
        case leftBehind
    }

    /// `since`: when it was mounted, if this daemon takes it over from another one.
    init(
        store: GrantStore, shown: ShownViews, mountpoint: [UInt8], options: MountOptions, files: ViewFS, owners: OwnerNamespace? = nil,
        since: Instant = Instant(nanoseconds: Clock.realtime)
    ) {
        self.owners = owners
        self.since = since
        self.shown = shown
        self.mountpoint = mountpoint
        self.options = options
        self.files = files
        fence = FleetFence(directory: store.runDirectory)
        state = Lock(State(store: store))
    }

    /// The name of the mount: the view, or the label of several.
    var view: ViewName { shown.label }

    /// Reads the store and applies it to this mount. When this returns, withdrawals are in effect
    /// for new operations. `pendingWithdrawals` tells when they are complete.
    ///
    /// `reopening`: reopens the store first, because its file was written to.
    func reconcile(reopening: Bool = false) {
        if applyWithdrawals(reopening: reopening) { openMissing() }
    }

    /// Applies withdrawals, names and access, without accessing a granted directory. Returns false if the store could not be read.
    func applyWithdrawals(reopening: Bool = false) -> Bool {
        var isChanged = false
        // Logged without the lock: the system's log may block its writers.
        var began: GrantError?
        var isRecovered = false
        let (tasks, isRefusing) = state.withLock { state -> ([() -> Void], Bool) in
            do throws(GrantError) {
                if reopening || state.isRefusing || state.wantsReopening { try reopen(&state) }
                let grants = try MountedView.patiently { () throws(GrantError) in try state.store.grants(shown) }
                isRecovered = state.isRefusing
                state.failure = nil
                if case .mountpoints = shown {
                    let names = Set(try state.store.views().compactMap { shown.mountpoint(of: $0) })
                    isChanged = files.names.setMountpoints(names)
                }
                return (withdraw(grants, &state, &isChanged), false)
            } catch {
                if !state.isRefusing { began = error }
                state.failure = error
                return (refuseAll(&state, &isChanged), true)
            }
        }
        if let began { SystemLog.write(.error, Terminal.visible("everything is refused: \(began)"), fields) }
        if isRecovered { SystemLog.write(.notice, "the store can be read again", fields) }
        for task in tasks { task() }
        if isChanged { files.invalidateVirtualDirectories() }
        return !isRefusing
    }

    // MARK: taking away

    /// Compares the store with the live grants, shuts the withdrawn ones, and returns the work that
    /// follows outside the lock.
    private func withdraw(_ grants: [Grant], _ state: inout State, _ isChanged: inout Bool) -> [() -> Void] {
        var tasks: [() -> Void] = []
        let now = Instant(nanoseconds: Clock.realtime)
        let present = Set(grants.map(\.id))
        let isFenced = grants.contains { $0.fleetActivation != nil } && !mayUseFleet()
        for (id, live) in state.grants where !present.contains(id) {
            // Removed: the name is unknown from now on.
            files.names.set(live.path, nil)
            isChanged = true
            if let scope = live.scope {
                tasks.append(close(scope, .all, of: id, &state))
            } else {
                // It was revoked before, so no confirmation waits for this.
                let refusals = recordDenials(&state)
                if !refusals.isEmpty { tasks.append { self.say(refusals) } }
            }
            state.grants[id] = nil
        }
        // All old names go before any new one comes: one grant may have taken another's name.
        for grant in grants {
            guard let old = state.grants[grant.id], old.grant.name != grant.name else { continue }
            files.names.set(old.path, nil)
            isChanged = true
        }
        for grant in grants {
            if state.shutUnrecorded[grant.id] != grant.activation { state.shutUnrecorded[grant.id] = nil }
            let isShut = isFenced && grant.fleetActivation != nil
            let recorded = state.shutUnrecorded[grant.id] == nil && !isShut ? grant.state(at: now) : .revoked
            var live = state.grants[grant.id] ?? LiveGrant(grant: grant, path: shown.path(of: grant), recorded: recorded)
            live.isFenced = isShut && grant.state(at: now) == .active
            if live.grant.name != grant.name {
                live.path = shown.path(of: grant)
                if let scope = live.scope { files.names.set(live.path, .open(scope)) }
            }
            // A name that was refused stays refused until its directory is open again, or found to be gone: never unknown in between.
            if let scope = live.scope,
                recorded != .active || scope.activation != grant.activation || fence.hasShut(scope)
                    || (grant.isOffered && !files.isOffered(scope))
            {
                live.scope = nil
                files.names.set(live.path, .refused(grant.id))
                isChanged = true
                tasks.append(close(scope, .all, of: grant.id, &state))
            }
            if recorded != .active {
                if case .refused = files.names.place(live.path) {} else { isChanged = true }
                files.names.set(live.path, .refused(grant.id))
            }
            if let scope = live.scope, files.isOffered(scope) {
                if !grant.isOffered { tasks.append(admit(scope, grant, &state)) }
            } else if let scope = live.scope, grant.access != live.grant.access {
                tasks.append(change(scope, to: grant.access, of: grant.id, &state))
            }
            if let scope = live.scope, scope.isRuled, files.rules(of: scope) != grant.rules {
                tasks.append(change(scope, to: grant.rules, of: grant.id, &state))
            }
            if live.grant.activation != grant.activation { live.released = nil }
            if let scope = live.scope, live.grant.bookmark.path != grant.bookmark.path {
                files.doubt(scope)
                let (claims, old) = (claims, live.grant.bookmark.path)
                tasks.append { claims?.recordMove(old, to: grant.bookmark.path) }
            }
            if live.grant.coordination != grant.coordination { state.changesCoordination = true }
            live.grant = grant
            live.recorded = recorded
            state.grants[grant.id] = live
            if grant.fleetActivation != nil, let scope = live.scope { fence.guardScope(scope) }
        }
        return tasks
    }

    /// Refuses all grants, because the store cannot be read.
    private func refuseAll(_ state: inout State, _ isChanged: inout Bool) -> [() -> Void] {
        var tasks: [() -> Void] = []
        for (id, live) in state.grants {
            files.names.set(live.path, .refused(id))
            guard let scope = live.scope else { continue }
            isChanged = true
            tasks.append(close(scope, .all, of: id, &state))
            state.grants[id]?.scope = nil
        }
        return tasks
    }

    /// Puts other rules into effect. Returns the rest of the work, to be run without the lock.
    private func change(_ scope: Scope, to rules: GrantRules, of grant: GrantID, _ state: inout State) -> () -> Void {
        files.setRules(rules, of: scope)
        let pending = PendingWithdrawal(of: scope)
        state.note(pending, of: grant)
        let files = files
        return {
            _ = BackgroundTask {
                let outcome = files.finishRules(of: scope, patience: 2_000)
                if outcome.isConfirmed { return pending.end(outcome) }
                pending.note(outcome) { files.finishRules(of: scope, patience: 0) }
            }
        }
    }

    /// Opens an offered scope that a person has allowed. Returns the work, to be run without the lock.
    private func admit(_ scope: Scope, _ grant: Grant, _ state: inout State) -> () -> Void {
        let pending = PendingWithdrawal(of: scope)
        state.note(pending, of: grant.id)
        return { [self] in
            _ = BackgroundTask { [self] in
                let isAdmitted = files.admit(scope, readOnly: grant.access == .readOnly)
                // Another access may have been chosen before the scope was open, and is then in force before this ends.
                let access = self.state.withLock { state in
                    state.grants[grant.id].flatMap { $0.scope === scope ? $0.grant.access : nil }
                }
                if access == .readWrite, files.wantsReadOnly(scope) {
                    files.wantWriting(scope)
                    files.widen(scope)
                } else if access == .readOnly, !isAdmitted || grant.access != .readOnly {
                    files.shut(scope, .writing)
                    let outcome = files.finish(scope, .writing, patience: 2_000)
                    if !outcome.isConfirmed { return pending.note(outcome) { [files] in files.complete(scope, .writing) } }
                }
                pending.end(.done)
            }
        }
    }

    private func change(_ scope: Scope, to access: Access, of grant: GrantID, _ state: inout State) -> () -> Void {
        if access == .readOnly { return close(scope, .writing, of: grant, &state) }
        files.wantWriting(scope)
        let pending = PendingWithdrawal(of: scope)
        state.note(pending, of: grant)
        let files = files
        return {
            _ = BackgroundTask {
                files.widen(scope)
                pending.end(.done)
            }
        }
    }
}
