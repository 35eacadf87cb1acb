import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Writes back what the kernel still holds dirty of a scope that is being closed.
extension ViewFS {
    /// Limits of the write-back of dirty files: how many files at once; after how long without progress in one others start beside
    /// it; and how long write-back is still waited for after the gate was shut for all of it.
    static let launderedAtOnce = 16
    static let stillNanoseconds: Int64 = 50_000_000
    static let abandoningNanoseconds: Int64 = 500_000_000
    /// How many nodes that could not be invalidated are named.
    static let namedAtMost = 8

    /// Invalidates data that may be dirty, which makes the kernel write it back and wait. A backing filesystem that hangs would
    /// block that call, so it runs on threads of its own, while this one watches the progress and releases workers that make none.
    ///
    /// `patience`: milliseconds without progress. `stuck`: the operations that were released are added.
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
            // A file that is not written back does not hold up the data of others.
            if still > Self.stillNanoseconds { invalidator.poll() }
            guard still > Int64(truncatingIfNeeded: patience) &* 1_000_000 else { continue }
            // Gives up: write-back that has not arrived yet is refused at once, so that it does not take a worker each.
            coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
            releaseCacheWrites(scope, withdrawal, &stuck)
            usleep(1_000)
            // What is left then waits for something other than this daemon: the last step names it.
            if still > Int64(truncatingIfNeeded: patience) &* 1_000_000 + Self.abandoningNanoseconds { return }
        }
    }

    /// Waits at most `patience` milliseconds for operations inside the scope to end, and releases those that are left.
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

    /// The operations inside the scope that the withdrawal is about and has not released yet.
    private func unreleased(
        in scope: Scope, _ withdrawal: Withdrawal, besides stuck: [Coordinator.Occupant]
    ) -> [Coordinator.Occupant] {
        coordinator.occupants(of: scope.id).filter { (withdrawal == .all || $0.entry.isChange) && !stuck.contains($0) }
    }
}
