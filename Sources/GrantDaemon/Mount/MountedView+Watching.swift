import GrantCoordinator
import Glibc
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

// Periodic checks, once a second. They have two threads, because those of directories may hang.
extension MountedView {
    /// Watches the store and the clock: never touches a granted directory.
    func watchStore() {
        var version: Int64?
        // The file may have been written to since the store was opened.
        var stamp: Int64? = state.withLock(\.store.openingStamp)
        var lost = 0
        InjectedFault.stop(at: "store")
        while true {
            usleep(untilNextLook())
            files.pauseGate.run {
                let (now, file, isRefusing) = state.withLock { state in
                    (try? state.store.dataVersion(), try? state.store.fileStamp(), state.isRefusing || state.wantsReopening)
                }
                let isWritten = file == nil || file != stamp
                if now == nil || now != version || isWritten || isRefusing || hasExpired(), applyWithdrawals(reopening: isWritten) {
                    _ = BackgroundTask(mayHang: true) { self.openMissing() }
                }
                (version, stamp) = (now, file)
                expireInStore()
                logDenials()
                lost = sayLostWorkers(since: lost)
                checkPendingWithdrawals()
                files.offers.expire()
                reapClosed()
                endWorkplaces()
                files.trim()
            }
        }
    }

    /// Watches the granted directories: moved ones are followed, removed ones lose their name,
    /// missing ones are searched for.
    func watchDirectories() {
        let watch = try? MountWatch()
        for turn in (0 as UInt64)... {
            if watch == nil { usleep(1_000_000) }
            let hasChanged = watch?.changed(within: 1_000) != false
            files.pauseGate.run {
                if hasChanged {
                    files.mountsChanged()
                    noteOwnFlags()
                }
                endReleases()
                followDirectories(turn: turn)
                openMissing()
            }
        }
    }

    /// A remount, which is root's, changes the flags of the mount and tells the daemon nothing.
    private func noteOwnFlags() {
        guard geteuid() == 0, let identity = identity.withLock({ $0 }), let table = try? MountTable.current(),
            let entry = identity.entry(in: table)
        else { return }
        let flags = Set(entry.options.split(separator: ","))
        let isOff = flags.contains("noatime")
        files.leaveAccessTimes(offFiles: isOff, offDirectories: isOff || flags.contains("nodiratime"))
    }

    /// Microseconds until there is something to do: a second, or less when a grant expires before.
    private func untilNextLook() -> UInt32 {
        let now = Instant(nanoseconds: Clock.realtime)
        let next = state.withLock { state -> Double? in
            guard state.summed().hasExpiring else { return nil }
            return state.grants.values.filter { $0.recorded == .active }.compactMap { $0.grant.expires?.seconds(since: now) }.min()
        }
        guard let next else { return 1_000_000 }
        return UInt32(exactly: (min(max(next, 0.001), 1) * 1_000_000).rounded()) ?? 1_000_000
    }

    private func hasExpired() -> Bool {
        let now = Instant(nanoseconds: Clock.realtime)
        return state.withLock { state in
            state.summed().hasExpiring && state.grants.values.contains { $0.recorded == .active && $0.grant.state(at: now) == .expired }
        }
    }

    /// Records grants that have expired, so that a clock that is set back does not reactivate them.
    private func expireInStore() {
        let (expired, store) = state.withLock { state -> ([GrantID], GrantStore) in
            guard state.summed().hasExpiring else { return ([], state.store) }
            return (state.grants.values.filter { $0.recorded == .expired && $0.grant.state == .active }.map(\.grant.id), state.store)
        }
        if expired.isEmpty { return }
        try? store.markExpired(expired, now: Instant(nanoseconds: Clock.realtime), by: actor)
    }

    /// Writes one line of the log for the refusals of a second, with the process refused last. It
    /// counts those of withdrawn grants, and of changes below read-only grants.
    func logDenials() { say(state.withLock { recordDenials(&$0) }) }

    /// Writes the lines of the log, and returns what the system's log gets without the lock.
    func recordDenials(_ state: inout State) -> [Refusal] {
        var refusals = state.unwritten
        state.unwritten = []
        let scopes = files.takeHasDenials() ? state.closed + state.summed().open.map(\.scope) : []
        for scope in scopes {
            guard let live = state.grants[scope.grant] else { continue }
            refusals += takeRefusals(of: scope, live.grant)
        }
        for (grant, refused) in files.names.takeRefusals() {
            guard let live = state.grants[grant] else { continue }
            refusals.append(Refusal(live.grant, refused.count, uid: refused.uid, pid: refused.pid, program: refused.program))
        }
        for refusal in refusals {
            state.counts.note(denials: refusal.count, of: refusal.grant)
            // Best effort: the refusal is in effect even if it cannot be recorded.
            try? state.store.append(
                .denied, view: refusal.grant.view, grant: refusal.grant.id, name: refusal.grant.name, detail: refusal.operations,
                path: refusal.path,
                count: Int64(clamping: refusal.count), by: refusal.last)
        }
        return refusals
    }

    /// Takes the refusals of a scope since the last call. Its nodes have to be known still, or the paths and rules are unknown.
    func takeRefusals(of scope: Scope, _ grant: Grant) -> [Refusal] {
        let refused = files.takeDenials(of: scope)
        let counted = refused.count > 0 ? [Refusal(grant, refused.count, by: refused.last)] : []
        return counted + (refused.ruled.map { [Refusal(grant, $0)] } ?? [])
    }

    func say(_ refusals: [Refusal]) {
        for refusal in refusals {
            say(
                .notice, .denied,
                "refused \(refusal.operations) on “\(refusal.grant.name)” at \(place), the \(refusal.which) of \(refusal.last.description)",
                of: refusal.grant)
        }
    }

    /// The refusals of one grant in a second, and the last caller. Of those by its rules, the first, and what it wanted.
    struct Refusal {
        let grant: Grant
        let count: UInt64
        let last: Actor
        var ruled: RuleRefusals.Report?

        init(_ grant: Grant, _ count: UInt64, by caller: LastRefused.RefusedCaller?) {
            self.init(grant, count, uid: caller?.uid ?? 0, pid: caller?.pid ?? 0, program: caller?.program ?? [])
        }

        init(_ grant: Grant, _ ruled: RuleRefusals.Report) {
            self.init(grant, ruled.count, by: ruled.caller)
            self.ruled = ruled
        }

        init(_ grant: Grant, _ count: UInt64, uid: UInt32, pid: Int32, program: [UInt8]) {
            (self.grant, self.count) = (grant, count)
            last = Actor(uid: uid, pid: pid, program: String(decoding: program, as: UTF8.self))
        }

        var which: String { ruled == nil ? "last" : "first" }
        var path: [UInt8]? { ruled?.path }

        var operations: String {
            let operations = count == 1 ? "1 operation" : "\(count) operations"
            guard let ruled else { return operations }
            return operations + ", by " + (ruled.decision?.description ?? (path == nil ? "a rule" : "a rule for names below"))
        }
    }

    /// Frees closed scopes that the kernel has no nodes of any more.
    func reapClosed() {
        let closed = state.withLock { $0.closed }
        let gone = closed.filter { scope in files.isClosed(scope) && files.reap(scope) }
        if !gone.isEmpty { state.withLock { state in state.closed.removeAll { scope in gone.contains { $0 === scope } } } }
    }
}
