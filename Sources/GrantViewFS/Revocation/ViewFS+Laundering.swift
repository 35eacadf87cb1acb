import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// What the kernel still holds dirty of a scope that is being closed, and the write-back that brings it.
extension ViewFS {
    /// While dirty files are written back: so many at once, when one makes no progress for so long; and so long after the gate was shut for all of them
    /// they are no longer waited for.
    static let launderedAtOnce = 16
    static let stillNanoseconds: Int64 = 50_000_000
    static let abandoningNanoseconds: Int64 = 500_000_000
    /// So many of what could not be forgotten are named.
    static let namedAtMost = 8

    /// Invalidates data that may be dirty, which makes the kernel write it back and wait. A backing file system that hangs there would
    /// hold us as well, so this runs on threads of its own while we watch for progress and release what makes none.
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
            // A file that is not written back costs no other its data.
            if still > Self.stillNanoseconds { invalidator.poll() }
            guard still > Int64(truncatingIfNeeded: patience) &* 1_000_000 else { continue }
            // Given up: what has not reached us yet is refused at once, so that it takes no worker each.
            coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
            releaseCacheWrites(scope, withdrawal, &stuck)
            usleep(1_000)
            // What is left then waits for something else than us: the last step names it.
            if still > Int64(truncatingIfNeeded: patience) &* 1_000_000 + Self.abandoningNanoseconds { return }
        }
    }

    func waitForCacheWrites(
        _ scope: Scope, _ withdrawal: Withdrawal, patience: Int, stuck: inout [Coordinator.Occupant]
    ) {
        wait(upTo: patience * 1_000) { unreleased(in: scope, withdrawal, besides: stuck).isEmpty }
        releaseCacheWrites(scope, withdrawal, &stuck)
    }

    private func releaseCacheWrites(_ scope: Scope, _ withdrawal: Withdrawal, _ stuck: inout [Coordinator.Occupant]) {
        for occupant in unreleased(in: scope, withdrawal, besides: stuck) {
            release(occupant, withdrawal)
            stuck.append(occupant)
        }
    }

    private func unreleased(
        in scope: Scope, _ withdrawal: Withdrawal, besides stuck: [Coordinator.Occupant]
    ) -> [Coordinator.Occupant] {
        coordinator.occupants(of: scope.id).filter { (withdrawal == .all || $0.entry.isChange) && !stuck.contains($0) }
    }
}
