import GrantModel
import Glibc
import GrantSystem
import GrantViewFS

// The end in order. What the kernel keeps of a mount outlives its daemon, so all of it is withdrawn while there is one.
extension MountedView {
    /// Withdrawals that are begun before earlier ones have ended.
    private static let atOnce = 64
    /// How long to wait for an earlier withdrawal before the next begins, in milliseconds.
    private static let turn: Int64 = 100

    /// Shuts every scope at once, and then carries the withdrawals through: dirty data is written back, and mappings, cached pages and held
    /// descriptors are refused from then on. Nothing is recorded: the next mount shows the grants again. One that hangs holds up no other.
    ///
    /// Returns whether all were carried through within the time. Locking: `state`, for a moment.
    func end(within seconds: Double) -> Bool {
        let deadline = Clock.deadline(seconds: seconds)
        let endings = state.withLock { state -> [(scope: Scope, pending: PendingWithdrawal)] in
            state.isEnding = true
            var endings = state.closed.filter { !files.isClosed($0) }.map { (scope: $0, pending: PendingWithdrawal(of: $0)) }
            for (id, live) in state.grants {
                files.names.set(live.path, .refused(id))
                guard let scope = live.scope else { continue }
                files.shut(scope, .all)
                let pending = PendingWithdrawal(of: scope)
                // A concurrent revocation of the grant waits for this one.
                state.note(pending, of: id)
                state.closed.append(scope)
                state.grants[id]?.scope = nil
                endings.append((scope, pending))
            }
            return endings
        }
        let running = Lock(0)
        for (scope, pending) in endings {
            wait(until: min(deadline, Clock.monotonic + MountedView.turn * 1_000_000)) { running.withLock { $0 < MountedView.atOnce } }
            running.withLock { $0 += 1 }
            let files = files
            _ = BackgroundTask {
                var outcome = files.finish(scope, .all, patience: 2_000)
                running.withLock { $0 -= 1 }
                while !outcome.isConfirmed, Clock.monotonic < deadline {
                    usleep(10_000)
                    outcome = files.complete(scope, .all)
                }
                pending.end(outcome)
            }
        }
        var left = endings.map(\.pending)
        wait(until: deadline) {
            left.removeAll { $0.outcome.withLock { $0?.isConfirmed } == true }
            return left.isEmpty
        }
        endWorkplaces(all: true, within: 1_000_000_000)
        return left.isEmpty
    }

    func wait(until deadline: Int64, _ isDone: () -> Bool) {
        var turn: UInt32 = 50
        while !isDone(), Clock.monotonic < deadline {
            usleep(turn)
            turn = min(turn * 2, 1_000)
        }
    }
}
