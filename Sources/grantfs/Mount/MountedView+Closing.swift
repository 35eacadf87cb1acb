import GrantControl
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewFS

// Withdrawals of a mount, from the closed gate until the kernel has nothing cached any more.
extension MountedView {
    /// A withdrawal, in progress or finished.
    final class Closing: Sendable {
        let outcome = Lock<ClosingOutcome?>(nil)
        /// The outcome so far, while a program keeps the kernel from dropping something.
        let partial = Lock<ClosingOutcome?>(nil)
        /// nil when the withdrawal has ended.
        let scope: Lock<Scope?>
        /// Returns the final outcome; nil until the kernel has dropped everything.
        private let completion = Lock<(@Sendable () -> ClosingOutcome?)?>(nil)

        init(of scope: Scope) { self.scope = Lock(scope) }

        /// Sets a partial outcome: the kernel has dropped everything except what a program holds, perhaps for as long as that lives.
        func note(_ result: ClosingOutcome, completion: @escaping @Sendable () -> ClosingOutcome?) {
            partial.withLock { $0 = result }
            self.completion.withLock { $0 = completion }
        }

        private let isLooking = Atomic<Bool>(false)

        /// Has a thread check whether the rest is done, unless one does so already. Does not wait: a later withdrawal may hold the scope's
        /// lock.
        func look() {
            guard let completion = completion.withLock({ $0 }), !isLooking.exchange(true, ordering: .acquiringAndReleasing) else { return }
            _ = BackgroundTask(mayHang: true) { [self] in
                if let result = completion() { end(result) }
                isLooking.store(false, ordering: .releasing)
            }
        }

        func end(_ result: ClosingOutcome) {
            completion.withLock { $0 = nil }
            outcome.withLock { $0 = result }
            scope.withLock { $0 = nil }
        }

        var hasEnded: Bool { outcome.withLock { $0 != nil } }
    }

    /// Closes the gate at once. Returns the rest of the withdrawal, to be run without locks.
    func close(_ scope: Scope, _ withdrawal: ViewFS.Withdrawal, of grant: GrantID, _ state: inout State) -> () -> Void {
        files.shut(scope, withdrawal)
        let closing = Closing(of: scope)
        let record = state.grants[grant]?.grant
        state.note(closing, of: grant)
        if withdrawal == .all { state.closed.append(scope) }
        return { [self] in
            if withdrawal == .all { claims?.withdrawn(scope) }
            _ = BackgroundTask { [self] in
                let outcome = files.finish(scope, withdrawal, patience: 2_000)
                self.state.withLock { $0.counts.note(outcome, withdrawal) }
                if let record { say(outcome, withdrawal, of: record) }
                if outcome.isConfirmed { return closing.end(outcome) }
                let isSaid = Lock(false)
                closing.note(outcome) { [self] in
                    guard let outcome = files.complete(scope, withdrawal) else { return nil }
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
    func lookAfterClosings() {
        let closings = state.withLock { state in state.closings.values.flatMap { $0 } }
        for closing in closings { closing.look() }
    }

    /// Returns the withdrawals that have to end before nothing is reachable through these grants. For an active grant these are the
    /// withdrawals of its present scope; those of earlier scopes are reported when the grant is withdrawn again.
    ///
    /// Locking: call it with `state` held.
    func closings(of grants: [GrantID], _ state: State) -> [GrantID: [Closing]] {
        var closings: [GrantID: [Closing]] = [:]
        for id in grants {
            let scope = state.grants[id]?.scope
            closings[id] = (state.closings[id] ?? []).filter { closing in
                guard let scope, let closed = closing.scope.withLock({ $0 }) else { return true }
                return closed === scope
            }
        }
        return closings
    }

    /// Waits for the withdrawals and returns the outcome of each grant. A grant without one is confirmed.
    func outcomes(of grants: [GrantID], _ closings: [GrantID: [Closing]], until deadline: Int64) -> ControlReply {
        .applied(
            grants.map { grant in
                let outcomes = (closings[grant] ?? []).map { outcome(of: $0, grant, until: deadline) }
                guard var last = outcomes.last else { return GrantOutcome(grant: grant, confirmed: true) }
                for earlier in outcomes.dropLast() where !earlier.confirmed {
                    last.confirmed = false
                    last.pending = last.pending &+ earlier.pending
                    for name in earlier.unforgotten where !last.unforgotten.contains(name) { last.unforgotten.append(name) }
                }
                return last
            })
    }

    private func outcome(of closing: Closing, _ grant: GrantID, until deadline: Int64) -> GrantOutcome {
        var turn: UInt32 = 50
        var next = Clock.monotonic
        while true {
            if Clock.monotonic >= next {
                closing.look()
                next = Clock.monotonic + 50_000_000
            }
            if let outcome = closing.outcome.withLock({ $0 }) { return GrantOutcome(outcome, of: grant) }
            if Clock.monotonic >= deadline {
                return closing.partial.withLock { $0 }.map { GrantOutcome($0, of: grant) } ?? GrantOutcome(grant: grant, confirmed: false)
            }
            usleep(turn)
            turn = min(turn * 2, 1_000)
        }
    }
}

extension MountedView.State {
    /// Adds a withdrawal to those of the grant that have not ended.
    mutating func note(_ closing: MountedView.Closing, of grant: GrantID) {
        forgetEnded(of: grant)
        closings[grant, default: []].append(closing)
    }

    /// Removes the withdrawals of the grant that have ended.
    mutating func forgetEnded(of grant: GrantID) { closings[grant]?.removeAll(where: \.hasEnded) }
}

extension GrantOutcome {
    init(_ outcome: ClosingOutcome, of grant: GrantID) {
        self.init(
            grant: grant, confirmed: outcome.isConfirmed, milliseconds: outcome.milliseconds, drained: outcome.drained,
            flushedBytes: outcome.flushedBytes, invalidatedInodes: outcome.invalidatedInodes, pending: outcome.pending,
            unforgotten: outcome.unforgotten)
    }
}
