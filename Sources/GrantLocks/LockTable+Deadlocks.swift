import Glibc

// Processes that wait for each other's POSIX locks for ever: one of them gets EDEADLK, as natively (fcntl_locking(2)). The protocol does
// not tell POSIX locks from open-file-description locks, so the latter get it as well where natively they would wait on.
extension LockTable {
    /// How many owners, waiters and ranges one search looks at. The kernel's own search ends after ten owners (fs/locks.c,
    /// MAX_DEADLK_ITERATIONS).
    static let searchLimit = 512

    /// Whether `waiter` waits for itself: it is in the way of somebody who is in the way of … who is in its way. Only those who waited
    /// before it are followed, so of all in a circle it is true for the last, who closed it, and for no other.
    ///
    /// `steps`: how many the search may take, and, afterwards, how many of them are left. Without any left it has found nothing.
    ///
    /// Locking: one file's, or `waits`, at a time, and each for a few steps, so what it sees may just be changing.
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

    /// Adds the owners of what is in the way of a waiter.
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
