import Glibc

// Deadlocks between POSIX locks: one request fails with EDEADLK, as natively (fcntl_locking(2)).
// Open-file-description locks get it too, because the protocol does not distinguish them.
extension LockTable {
    /// The limit of owners, waiters and ranges that one search visits.
    ///
    /// The kernel's own search ends after ten owners (fs/locks.c, MAX_DEADLK_ITERATIONS).
    static let searchLimit = 512

    /// Whether `waiter` waits for itself through a chain of other requests.
    ///
    /// Only requests that waited earlier are followed. So in each deadlock it is true only for the
    /// last request, which closed the cycle.
    ///
    /// `steps`: the limit of the search, and afterwards the steps that are left. A search that has
    /// none left has found no deadlock.
    ///
    /// Locking: one file's lock, or `waits`, at a time, and each for a few steps. So the visited
    /// state may just be changing.
    func isInDeadlock(_ waiter: LockWaiter, steps: inout Int) -> Bool {
        var seen: Set<UInt64> = []
        var next: [UInt64] = []
        follow(waiter, &next, &steps)
        while steps > 0, let owner = next.popLast() {
            steps -= 1
            if owner == waiter.owner { return true }
            guard seen.insert(owner).inserted else { continue }
            for other in waits.withLock({ $0.byOwner[owner] }) ?? [] where steps > 0 {
                steps -= 1
                if other.number < waiter.number, !other.isTaken { follow(other, &next, &steps) }
            }
        }
        return false
    }

    /// Adds the owners of the locks that block a waiter.
    private func follow(_ waiter: LockWaiter, _ owners: inout [UInt64], _ steps: inout Int) {
        guard let file = waiter.scope.file(of: waiter), let range = waiter.range else { return }
        steps -= file.state.withLock { state in
            var left = steps
            return state.held.visit(overlapping: range) { held in
                if held.owner != waiter.owner, held.range.conflicts(with: range) { owners.append(held.owner) }
                left -= 1
                return left > 0
            }
        }
    }
}
