import GrantControl
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewFS

// Withdrawals of a mount, from the closed gate until the kernel has nothing cached any more.
extension MountedView {
    /// A withdrawal, in progress or finished.
    final class PendingWithdrawal: Sendable {
        let outcome = Lock<WithdrawalOutcome?>(nil)
        /// The outcome so far, while a program keeps the kernel from dropping something.
        let partial = Lock<WithdrawalOutcome?>(nil)
        /// It is nil when the withdrawal has ended.
        let scope: Lock<Scope?>
        /// Returns the final outcome, or a partial one until the kernel has dropped everything.
        private let completion = Lock<(@Sendable () -> WithdrawalOutcome)?>(nil)

        init(of scope: Scope) { self.scope = Lock(scope) }

        /// Sets a partial outcome: the kernel has dropped everything except the files that a
        /// program holds, perhaps for as long as that lives.
        func note(_ result: WithdrawalOutcome, completion: @escaping @Sendable () -> WithdrawalOutcome) {
            partial.withLock { $0 = result }
            self.completion.withLock { $0 = completion }
        }

        private let isChecking = Atomic<Bool>(false)

        /// Has a thread check whether the rest is done, unless one does so already. Does not wait: a later withdrawal may hold the scope's
        /// lock.
        func check() {
            guard let completion = completion.withLock({ $0 }), !isChecking.exchange(true, ordering: .acquiringAndReleasing) else { return }
            _ = BackgroundTask(mayHang: true) { [self] in
                let result = completion()
                if result.isConfirmed { end(result) } else { partial.withLock { $0 = result } }
                isChecking.store(false, ordering: .releasing)
            }
        }

        func end(_ result: WithdrawalOutcome) {
            completion.withLock { $0 = nil }
            outcome.withLock { $0 = result }
            scope.withLock { $0 = nil }
        }

        var hasEnded: Bool { outcome.withLock { $0 != nil } }
    }

    /// Closes the gate at once. Returns the rest of the withdrawal, to be run without locks.
    func close(_ scope: Scope, _ withdrawal: ViewFS.Withdrawal, of grant: GrantID, _ state: inout State) -> () -> Void {
        files.shut(scope, withdrawal)
        let pending = PendingWithdrawal(of: scope)
        let record = state.grants[grant]?.grant
        state.note(pending, of: grant)
        if withdrawal == .all {
            state.closed.append(scope)
            if let record { state.unwritten += takeRefusals(of: scope, record) }
        }
        return { [self] in
            if withdrawal == .all { claims?.withdrawn(scope) }
            _ = BackgroundTask { [self] in
                let outcome = files.finish(scope, withdrawal, patience: 2_000)
                self.state.withLock { $0.counts.note(outcome, withdrawal) }
                if let record { say(outcome, withdrawal, of: record) }
                if outcome.isConfirmed { return pending.end(outcome) }
                let isSaid = Lock(false)
                pending.note(outcome) { [self] in
                    let outcome = files.complete(scope, withdrawal)
                    if !outcome.isConfirmed { return outcome }
                    // Several threads may check: those that wait, and the mount's own once a second.
                    let isFirst = isSaid.withLock { isSaid in
                        defer { isSaid = true }
                        return !isSaid
                    }
                    if isFirst, let record { say(outcome, withdrawal, of: record) }
                    return outcome
                }
            }
        }
    }

    /// Checks withdrawals that wait for programs.
    func checkPendingWithdrawals() {
        let pendingWithdrawals = state.withLock { state in state.pendingWithdrawals.values.flatMap { $0 } }
        for pending in pendingWithdrawals { pending.check() }
    }

    /// Returns the withdrawals that have to end before nothing is reachable through these grants.
    /// For an active grant these are the withdrawals of its present scope. Those of earlier scopes
    /// are reported when the grant is withdrawn again.
    ///
    /// Locking: call it with `state` held.
    func pendingWithdrawals(of grants: [GrantID], _ state: State) -> [GrantID: [PendingWithdrawal]] {
        var pendingWithdrawals: [GrantID: [PendingWithdrawal]] = [:]
        for id in grants {
            let scope = state.grants[id]?.scope
            pendingWithdrawals[id] = (state.pendingWithdrawals[id] ?? []).filter { pending in
                guard let scope, let closed = pending.scope.withLock({ $0 }) else { return true }
                return closed === scope
            }
        }
        return pendingWithdrawals
    }

    /// Waits for the withdrawals and returns the outcome of each grant. A grant without one is confirmed.
    func outcomes(of grants: [GrantID], _ pendingWithdrawals: [GrantID: [PendingWithdrawal]], until deadline: Int64) -> ControlReply {
        .applied(
            grants.map { grant in
                let outcomes = (pendingWithdrawals[grant] ?? []).map { outcome(of: $0, grant, until: deadline) }
                guard var last = outcomes.last else { return GrantOutcome(grant: grant, confirmed: true) }
                for earlier in outcomes.dropLast() where !earlier.confirmed {
                    last.confirmed = false
                    last.pending = last.pending &+ earlier.pending
                    for name in earlier.unforgotten where !last.unforgotten.contains(name) { last.unforgotten.append(name) }
                    for process in earlier.processes where !last.processes.contains(process) { last.processes.append(process) }
                    last.blockedDirectories += earlier.blockedDirectories
                }
                return last
            })
    }

    private func outcome(of pending: PendingWithdrawal, _ grant: GrantID, until deadline: Int64) -> GrantOutcome {
        var turn: UInt32 = 50
        var next = Clock.monotonic
        while true {
            if Clock.monotonic >= next {
                pending.check()
                next = Clock.monotonic + 50_000_000
            }
            if let outcome = pending.outcome.withLock({ $0 }) { return GrantOutcome(outcome, of: grant) }
            if Clock.monotonic >= deadline {
                return pending.partial.withLock { $0 }.map { GrantOutcome($0, of: grant) } ?? GrantOutcome(grant: grant, confirmed: false)
            }
            usleep(turn)
            turn = min(turn * 2, 1_000)
        }
    }
}

extension MountedView.State {
    /// Adds a withdrawal to those of the grant that have not ended.
    mutating func note(_ pending: MountedView.PendingWithdrawal, of grant: GrantID) {
        forgetEnded(of: grant)
        pendingWithdrawals[grant, default: []].append(pending)
    }

    /// Removes the withdrawals of the grant that have ended.
    mutating func forgetEnded(of grant: GrantID) { pendingWithdrawals[grant]?.removeAll(where: \.hasEnded) }
}

extension GrantOutcome {
    init(_ outcome: WithdrawalOutcome, of grant: GrantID) {
        self.init(
            grant: grant, confirmed: outcome.isConfirmed, milliseconds: outcome.milliseconds, drained: outcome.drained,
            flushedBytes: outcome.flushedBytes, invalidatedInodes: outcome.invalidatedInodes, pending: outcome.pending,
            unforgotten: outcome.unforgotten, processes: outcome.processes, blockedDirectories: outcome.blockedDirectories)
    }
}
