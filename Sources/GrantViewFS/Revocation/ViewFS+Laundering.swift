import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Writes back the pages of a closing scope that are still dirty in the kernel.
extension ViewFS {
    /// Limits of the write-back of dirty files.
    ///
    /// `launderedAtOnce` files are written back at once. After `stillNanoseconds` without progress
    /// in one, others start beside it. After the gate was shut for all write-back,
    /// `abandoningNanoseconds` is the longest wait.
    static let launderedAtOnce = 16
    static let stillNanoseconds: Int64 = 50_000_000
    static let abandoningNanoseconds: Int64 = 500_000_000
    /// How many nodes that could not be invalidated are named.
    static let namedAtMost = 8
    /// How many blocked directories an outcome has. Commands look for the processes that hold them.
    static let blockedAtMost = 256

    /// Invalidates data that may be dirty, which makes the kernel write it back and wait.
    ///
    /// A backing filesystem that hangs would block that call. So it runs on threads of its own,
    /// while this thread watches the progress and releases workers that make none.
    ///
    /// `patience`: milliseconds without progress. `stuck`: gets the operations that were released.
    func launder(
        _ files: [UInt64], _ scope: Scope, _ notifier: Notifier, _ withdrawal: Withdrawal, patience: Int,
        stuck: inout [Coordinator.Occupant]
    ) {
        if files.isEmpty { return }
        let invalidator = DataInvalidator(self, notifier, limit: Self.launderedAtOnce)
        invalidator.add(files)
        let gate = coordinator.gate(scope.id)
        var progress = gate.pointee.flushedBytes.load(ordering: .relaxed)
        var moved = Clock.monotonic
        while !invalidator.isDone {
            usleep(100)
            let now = gate.pointee.flushedBytes.load(ordering: .relaxed)
            if now != progress {
                scope.progress.withLock { $0?.done += now &- progress }
                progress = now
                moved = Clock.monotonic
                continue
            }
            let still = Clock.monotonic - moved
            // A file that is not written back does not delay the data of others.
            if still > Self.stillNanoseconds { invalidator.poll() }
            guard still > Int64(truncatingIfNeeded: patience) &* 1_000_000 else { continue }
            // Gives up: later write-back is refused immediately, so that it does not take a worker
            // each.
            coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
            releaseCacheWrites(scope, withdrawal, &stuck)
            usleep(1_000)
            // The rest waits for something other than this daemon. The last step of the withdrawal
            // names it.
            if still > Int64(truncatingIfNeeded: patience) &* 1_000_000 + Self.abandoningNanoseconds { return }
        }
    }

    /// Waits at most `patience` milliseconds for operations inside the scope, and releases the
    /// rest.
    func waitForCacheWrites(
        _ scope: Scope, _ withdrawal: Withdrawal, patience: Int, stuck: inout [Coordinator.Occupant]
    ) {
        wait(upTo: patience * 1_000) { unreleased(in: scope, withdrawal, besides: stuck).isEmpty }
        releaseCacheWrites(scope, withdrawal, &stuck)
    }

    /// Answers operations that are still inside, in place of their workers.
    private func releaseCacheWrites(_ scope: Scope, _ withdrawal: Withdrawal, _ stuck: inout [Coordinator.Occupant]) {
        for occupant in unreleased(in: scope, withdrawal, besides: stuck) {
            release(occupant, withdrawal)
            stuck.append(occupant)
        }
    }

    /// The operations inside the scope that the withdrawal affects and has not released yet.
    private func unreleased(
        in scope: Scope, _ withdrawal: Withdrawal, besides stuck: [Coordinator.Occupant]
    ) -> [Coordinator.Occupant] {
        coordinator.occupants(of: scope.id).filter { (withdrawal == .all || $0.entry.isChange) && !stuck.contains($0) }
    }
}
