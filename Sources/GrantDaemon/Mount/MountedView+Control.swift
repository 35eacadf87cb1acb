import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

/// Answers the commands of one mount.
struct MountControl: ControlHandler {
    let mounted: MountedView
    /// Called when a command asks for the end of the mount.
    let end: @Sendable () -> Void
    let handingOver: HandingOver

    func handOver(over socket: borrowing UnixSocket, of server: ControlServer) { handingOver.handOver(over: socket, of: server) }

    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply {
        switch request {
        case .apply(let grants, let timeout): mounted.apply(grants, timeoutMilliseconds: Int(truncatingIfNeeded: timeout))
        case .shut(let grants, let timeout): mounted.shut(grants, timeoutMilliseconds: Int(truncatingIfNeeded: timeout))
        case .release(let grants, let timeout): mounted.release(grants, timeoutMilliseconds: Int(truncatingIfNeeded: timeout))
        case .status: .status(mounted.status)
        case .metrics: .metrics(mounted.metrics)
        case .locate(let grants): .located(mounted.places(of: grants))
        case .progress(let grants): .progress(mounted.progress(of: grants))
        case .waits(let claimant): mounted.claims?.waits(of: claimant) ?? .waits(holds: false, [])
        case .questions(let last, let timeout):
            .questions(mounted.questions(after: last, timeoutMilliseconds: Int(truncatingIfNeeded: timeout)))
        case .ping: .done
        // Only where there is no room for one: otherwise the server has made it.
        case .session: .failed("too many are connected")
        // Answered on the connection itself.
        case .handOver: .failed("it makes no sense here")
        case .unmount:
            answeringFirst()
        }
    }

    private func answeringFirst() -> ControlReply {
        end()
        return .done
    }
}

extension MountedView {
    /// Reads the store again and waits until it is in effect for `grants`, up to the time-out.
    func apply(_ grants: [GrantID], timeoutMilliseconds: Int) -> ControlReply {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: timeoutMilliseconds) &* 1_000_000
        if applyWithdrawals() {
            // Waits for filesystems only if the caller needs one of the missing directories.
            let isOpening = state.withLock { state in
                grants.contains { state.grants[$0].map { $0.recorded == .active && $0.scope == nil } ?? false }
            }
            if isOpening { openMissing() } else { _ = BackgroundTask(mayHang: true) { self.openMissing() } }
        }
        let (pendingWithdrawals, failure) = state.withLock { (self.pendingWithdrawals(of: grants, $0), $0.failure) }
        if let failure { return .failed("its daemon refuses everything, because \(failure)") }
        let reply = outcomes(of: grants, pendingWithdrawals, until: deadline)
        endWorkplaces(within: 250_000_000)
        if state.withLock({ state in
            defer { state.changesCoordination = false }
            return state.changesCoordination
        }) {
            claims?.rebind(until: deadline)
        }
        awaitNames(of: grants, until: deadline)
        return reply
    }

    /// Waits until the kernel no longer has the former names of `grants` cached, which takes some 80 ms at most. The directory of a withdrawn
    /// grant is refused even before.
    func awaitNames(of grants: [GrantID], until deadline: Int64) {
        let shown = state.withLock { state in grants.filter { id in state.grants[id].map { $0.recorded == .active } ?? true } }
        let until = files.names.cachedUntil(of: shown)
        let wait = min(until, deadline) - Clock.monotonic
        if wait > 0 { usleep(UInt32(clamping: wait / 1_000 + 1)) }
    }

    /// Returns the progress of withdrawals that have not ended.
    func progress(of grants: [GrantID]) -> [GrantProgress] {
        let pendingWithdrawals = state.withLock { state in grants.flatMap { id in (state.pendingWithdrawals[id] ?? []).map { (id, $0) } } }
        return pendingWithdrawals.compactMap { id, pending in
            guard let scope = pending.scope.withLock({ $0 }), let progress = files.progress(of: scope) else { return nil }
            let stage: GrantProgress.Stage =
                switch progress.stage {
                case .draining: .draining
                case .flushing: .flushing
                case .forgetting: .forgetting
                }
            return GrantProgress(grant: id, stage: stage, done: progress.done, total: progress.total)
        }
    }

    /// Shuts grants whose withdrawal could not be recorded. They stay shut until the store changes their state or activation.
    func shut(_ grants: [GrantID], timeoutMilliseconds: Int) -> ControlReply {
        state.withLock { state in
            for id in grants { state.shutUnrecorded[id] = state.grants[id]?.grant.activation }
        }
        return apply(grants, timeoutMilliseconds: timeoutMilliseconds)
    }

    /// Returns the paths of open directories. They come from the descriptors, so no filesystem is asked.
    func places(of grants: [GrantID]) -> [GrantPlace] {
        let scopes = state.withLock { state in grants.compactMap { id in state.grants[id]?.scope.map { (id, $0) } } }
        return scopes.compactMap { id, scope in files.path(of: scope).map { GrantPlace(grant: id, path: $0) } }
    }

    /// Waits for programs that use an offered directory for the first time.
    func questions(after last: UInt64, timeoutMilliseconds: Int) -> [OfferQuestion] {
        // Short, so that a handover does not wait for it long.
        let patience = min(timeoutMilliseconds, 2_000)
        let asked = files.offers.questions(after: last, until: Clock.monotonic + Int64(truncatingIfNeeded: patience) &* 1_000_000)
        let grants = state.withLock { state in
            Dictionary(
                state.grants.compactMap { id, live in live.scope.map { ($0.id.rawValue, id) } }, uniquingKeysWith: { first, _ in first })
        }
        return asked.compactMap { question in
            grants[question.scope].map { OfferQuestion(number: question.number, grant: $0, thread: question.thread) }
        }
    }

    /// Whether a path of the host lies in a grant that is withdrawn.
    func isRevoked(_ path: [UInt8]) -> Bool {
        state.withLock { state in
            state.grants.values.contains { $0.recorded != .active && MountTable.path(path, isAtOrBelow: $0.grant.bookmark.path) }
        }
    }

    /// Whether claims on some grant are mandatory for every program in the mount.
    var hasMandatory: Bool { state.withLock { $0.grants.values.contains { $0.grant.coordination == .mandatory } } }

    /// Whether claims on this grant are mandatory.
    func isMandatory(_ grant: GrantID) -> Bool { state.withLock { $0.grants[grant]?.grant.coordination == .mandatory } }

    private func hostChanges(of scope: Scope) -> HostChangeMeans {
        if !files.keepsContents { return .notNeeded }
        return switch files.hostChangeMeans(of: scope) {
        case .names, .data: .fanotify
        case .directories: .inotify
        case nil: .nobody
        }
    }

    var status: MountStatus {
        let live = state.withLock { Array($0.grants.values) }
        let grants = live.sorted { $0.path < $1.path }.map { live -> GrantStatus in
            let load = live.scope.map { files.load(of: $0) } ?? (inodes: 0, inFlight: 0, counts: ScopeCounts())
            let state: GrantState =
                switch live.recorded {
                case .active: live.scope == nil || !live.finding.isUsable ? .unavailable : .active
                case .revoked: live.isFenced ? .unavailable : .revoked
                case .expired: .expired
                }
            return GrantStatus(
                id: live.grant.id, name: live.grant.name, state: state, path: live.scope.flatMap { files.path(of: $0) },
                inodes: UInt64(clamping: load.inodes), inFlight: UInt64(clamping: load.inFlight),
                traffic: GrantTraffic(
                    operations: load.counts.operations, readBytes: load.counts.readBytes, writtenBytes: load.counts.writtenBytes),
                hostChanges: live.scope.map(hostChanges))
        }
        return MountStatus(
            view: view, mountpoint: mountpoint, pid: getpid(), since: since, grants: grants,
            inodes: UInt64(clamping: files.tree.nodes.count), descriptors: UInt64(clamping: files.descriptorCount),
            requests: files.session?.requestCounts.byOpcode.map { RequestCount(opcode: $0.opcode, count: $0.count) } ?? [])
    }
}
