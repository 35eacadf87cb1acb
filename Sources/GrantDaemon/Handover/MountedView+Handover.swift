import Glibc
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// Handover of a mount's grants. Both daemons know the store. This one hands over the state in
// effect here.
extension MountedView {
    /// Returns why a handover has to wait, or nil if it may begin. An operation under way would
    /// have to start again.
    ///
    /// Locking: call it with `state` held.
    func reasonAgainstHandover(_ state: State) -> String? {
        if state.isEnding { return "it is being unmounted" }
        if shown.onlyView == nil { return "it shows several views" }
        if case .bound = shown { return "it is mounted for grantfs bwrap" }
        if let failure = state.failure { return "it refuses everything, because \(failure)" }
        if !state.shutUnrecorded.isEmpty { return "grants are shut that are not recorded as revoked" }
        if state.pendingWithdrawals.values.contains(where: { $0.contains { !$0.hasEnded } })
            || state.closed.contains(where: { !files.isClosed($0) })
        {
            return "a withdrawal is under way"
        }
        if state.grants.values.contains(where: { $0.scope != nil && $0.grant.bookmark.document != nil }) {
            return "it shows single files"
        }
        if !state.lookups.isEmpty { return "it looks for a granted directory" }
        if state.grants.values.contains(where: { $0.released != nil }) {
            return "a directory was released, and its filesystem is mounted still"
        }
        return nil
    }

    /// Writes the grants' state in effect, and everything below it, while everything is paused.
    ///
    /// Locking: call it with `opening` and `state` held.
    func handOver(_ state: State, to writer: inout HandoverWriter) throws(HandoverRefusal) {
        let live = state.grants.values.compactMap { live in live.scope.map { (live, $0) } }
        writer.put(UInt64(truncatingIfNeeded: live.count))
        for (live, _) in live {
            writer.put(grant: live.grant.id)
            writer.put(bytes: live.grant.name.bytes)
            var isShown = false
            if case .open = files.names.place(live.path) { isShown = true }
            writer.put(flag: isShown)
            writer.put(flag: live.grant.access == .readOnly)
            writer.put(bytes: Array(live.finding.rawValue.utf8))
        }
        writer.put(UInt64(truncatingIfNeeded: state.closed.count))
        try files.handOver(open: live.map(\.1), closed: state.closed, to: &writer)
    }

    /// Writes the state that was in effect in a dead daemon, as `handOver` does. `grants`: the present contents of the store.
    static func write(_ left: CrashedMount, _ fixed: CrashedMount.Fixed, _ grants: [GrantID: Grant], to writer: inout HandoverWriter)
        throws(Errno)
    {
        writer.put(UInt64(truncatingIfNeeded: left.live.count))
        for (id, isReadOnly) in left.live {
            guard let grant = grants[id] else { throw Errno(EIO) }
            writer.put(grant: id)
            writer.put(bytes: grant.name.bytes)
            writer.put(flag: true)
            writer.put(flag: isReadOnly)
            writer.put(bytes: Array(BookmarkFinding.ok.rawValue.utf8))
        }
        writer.put(UInt64(truncatingIfNeeded: left.closedCount))
        try left.write(fixed, to: &writer)
    }

    /// A grant's state in effect in the other daemon.
    private struct Taken {
        let id: GrantID
        let name: GrantName
        let isShown: Bool
        let isReadOnly: Bool
        let finding: BookmarkFinding

        init(from state: inout HandoverReader) throws(Errno) {
            id = try state.takeGrant()
            guard let name = try? GrantName(entry: try state.takeBytes()) else { throw Errno(EBADMSG) }
            self.name = name
            (isShown, isReadOnly) = (try state.takeFlag(), try state.takeFlag())
            guard let finding = BookmarkFinding(rawValue: try state.takeText()) else { throw Errno(EBADMSG) }
            self.finding = finding
        }
    }

    /// Puts into effect what `handOver` wrote. The store's changes since then are applied by `reconcile`, before any program is served.
    /// Returns the open scopes, and the withdrawals that have begun here, to be run once this daemon serves.
    func takeOver(from reader: inout HandoverReader, _ polling: IdlePolling?) throws(Errno) -> (open: [Scope], withdrawals: [() -> Void]) {
        var taken: [Taken] = []
        for _ in 0..<(try reader.takeCount(ofAtLeast: 16)) { taken.append(try Taken(from: &reader)) }
        let closedCount = try reader.take(UInt64.self)
        let scopes = try files.takeOver(
            from: &reader, source: view.description, words: options.words, leavesSetID: InjectedFault.ownSetID.isPresent,
            mapsDirectly: !InjectedFault.noDirectMaps.isPresent, idlePolling: polling)
        guard scopes.count == taken.count + Int(clamping: closedCount) else { throw Errno(EBADMSG) }
        // Without the grants nothing is taken over: missing ones would count as removed.
        guard let grants = state.withLock({ state in try? state.store.grants(shown) }) else { throw Errno(EIO) }
        let known = Dictionary(grants.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        if owners != nil {
            for (taken, scope) in zip(taken, scopes) { files.knowCopy(of: scope, at: known[taken.id]?.bookmark.path ?? []) }
        }
        return state.withLock { state in
            var (open, withdrawals): ([Scope], [() -> Void]) = ([], [])
            for scope in scopes[taken.count...] {
                // An unfinished withdrawal: a program that asks for it waits.
                if files.isClosed(scope) {
                    state.closed.append(scope)
                } else {
                    withdrawals.append(close(scope, .all, of: scope.grant, &state))
                }
            }
            for (taken, scope) in zip(taken, scopes) {
                guard var grant = known[taken.id] else {
                    // The grant was removed meanwhile: no name leads to it, and its held files are
                    // withdrawn once this daemon serves.
                    withdrawals.append(close(scope, .all, of: taken.id, &state))
                    continue
                }
                if grant.bookmark.document != nil {
                    // The location of its file, and its state in the mount, ended with the other
                    // daemon: it is opened again.
                    withdrawals.append(close(scope, .all, of: taken.id, &state))
                    continue
                }
                // The grant is taken as it is in effect. The first reading of the store applies the
                // differences.
                (grant.name, grant.access) = (taken.name, taken.isReadOnly ? .readOnly : .readWrite)
                state.grants[taken.id] = LiveGrant(
                    grant: grant, path: shown.path(of: grant), scope: scope, finding: taken.finding, recorded: .active)
                if taken.isShown { files.names.takeOver(taken.name, scope) }
                open.append(scope)
            }
            // A refused name stays refused until its directory is open again or known to be gone: which of the two is not known yet.
            for grant in grants where state.grants[grant.id] == nil && files.names.place(shown.path(of: grant)) == nil {
                files.names.set(shown.path(of: grant), .refused(grant.id))
            }
            return (open, withdrawals)
        }
    }
}
