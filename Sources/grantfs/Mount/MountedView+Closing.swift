import GrantControl
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewFS

// Withdrawals of a mount, from the shut gate to the moment when nothing is left.
extension MountedView {
    /// A withdrawal under way or done.
    final class Closing: Sendable {
        let outcome = Lock<ClosingOutcome?>(nil)
        /// What has come of it so far, while the kernel is kept from forgetting something.
        let partial = Lock<ClosingOutcome?>(nil)
        /// As long as it is under way.
        let scope: Lock<Scope?>
        /// Gives the outcome once the kernel has forgotten the rest as well, and nil until then.
        private let completion = Lock<(@Sendable () -> ClosingOutcome?)?>(nil)

        init(of scope: Scope) { self.scope = Lock(scope) }

        /// All but something that a program keeps the kernel from forgetting, which may be for as long as that program lives.
        func note(_ result: ClosingOutcome, completion: @escaping @Sendable () -> ClosingOutcome?) {
            partial.withLock { $0 = result }
            self.completion.withLock { $0 = completion }
        }

        private let isLooking = Atomic<Bool>(false)

        /// Has a thread look whether the rest is done, unless one does. Waits for nothing: the scope's lock may be held by a later withdrawal of it.
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

    /// Shuts the gate now and returns the rest of the withdrawal, to be run without a lock.
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
                    // Whoever waits for it looks, and so does the mount itself.
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

    /// Looks after withdrawals that wait for what programs hold.
    func lookAfterClosings() {
        let closings = state.withLock { state in state.closings.values.flatMap { $0 } }
        for closing in closings { closing.look() }
    }

    /// The withdrawals that must have ended before nothing is reached through these grants any more. Of a grant that is active those of its own scope
    /// alone: what it was before has been withdrawn, and whoever withdraws it again hears of that as well.
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

    /// Waits for what was closed; what was not needs no waiting.
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
    /// Remembers a withdrawal, and those before it that have not ended.
    mutating func note(_ closing: MountedView.Closing, of grant: GrantID) {
        forgetEnded(of: grant)
        closings[grant, default: []].append(closing)
    }

    /// The grant is open anew: what has ended is nobody's business any more.
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
