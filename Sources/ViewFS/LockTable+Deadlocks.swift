import Glibc

// Processes that wait for each other's POSIX locks for ever: one of them gets EDEADLK, as natively (fcntl_locking(2)). The protocol does not
// tell POSIX locks from open-file-description locks, so the latter get it as well where natively they would wait on.
extension LockTable {
    /// Whether `waiter` waits for itself: it is in the way of somebody who is in the way of … who is in its way. Only those who waited before
    /// it are followed, so of all in a circle it is true for the last, who closed it, and for no other.
    ///
    /// Locking: the table's.
    func isInDeadlock(_ waiter: LockWaiter) -> Bool {
        state.withLock { state in
            guard case .range(let own, let range) = waiter.wish else { return false }
            var seen: Set<UInt64> = []
            var next = Self.owners(inTheWayOf: range, of: own, state)
            while let owner = next.popLast() {
                if owner == own.owner { return true }
                guard seen.insert(owner).inserted else { continue }
                for other in state.waiters where other.number < waiter.number && !other.isGranted {
                    guard case .range(let description, let wanted) = other.wish, description.owner == owner else { continue }
                    next += Self.owners(inTheWayOf: wanted, of: description, state)
                }
            }
            return false
        }
    }

    private static func owners(inTheWayOf range: LockedRange, of description: LockDescription, _ state: State) -> [UInt64] {
        (state.descriptions[description.node] ?? []).filter { other in
            other.owner != description.owner && other.ranges.contains { $0.conflicts(with: range) }
        }.map(\.owner)
    }
}
