import Glibc
import GrantSystem

/// A file in which something is locked through this mount, or for a lock of which somebody waits.
///
/// Locking: its own lock, rank 3, held for a moment, below its scope's. What one file costs, only those pay who lock that file.
final class LockedFile: @unchecked Sendable {
    // Safe to share: everything is behind `state`.
    let node: UInt64
    let scope: ScopeLocks

    struct State {
        var owners: [UInt64: LockDescription] = [:]
        /// The owners whose descriptions were made for an open file.
        var handles: [UInt64: [UInt64]] = [:]
        var held = HeldRanges()
        /// Who waits, in the order in which they came: for ranges, and for the whole (flock(2)).
        var waiters: [LockWaiter] = []
        var wholeWaiters: [LockWaiter] = []
        /// Those among `waiters` whom the scope's thread has not looked at yet.
        var fresh: [LockWaiter] = []
        /// What was unlocked since the scope's thread last looked, from the first byte to the last, and whether somebody comes or goes who
        /// locks the whole.
        var freed: LockedRange?
        var isWholeFreed = false
        /// Whether the scope's thread is to look at it.
        var isQueued = false
        /// It has been taken out of its scope: whoever still has it in hand gets another.
        var isGone = false

        var isEmpty: Bool { owners.isEmpty && waiters.isEmpty && wholeWaiters.isEmpty }
    }

    let state = Lock(State())

    /// Whether somebody has to be tried for again and again, and after whom that goes on. Of the scope's thread.
    var isPolled = false
    var lastTried: UInt64 = 0

    init(node: UInt64, scope: ScopeLocks) { (self.node, self.scope) = (node, scope) }

    /// Notes that a range of `description` is locked or free now. Returns by how many ranges there are more of them, and whether somebody
    /// waits who may have it now. Under the description's `order`.
    func update(_ range: LockedRange, of description: LockDescription, isLocked: Bool) -> (more: Int, isAwaited: Bool) {
        state.withLock { state in
            // Nobody finds it any more; it ends with its last user.
            if description.isGone, isLocked { return (0, false) }
            let (removed, added) = description.ranges.set(range, isLocked: isLocked)
            state.held.change(description, removed: removed, added: added)
            var isAwaited = false
            // Also what is shared from now on.
            if let first = removed.first, let last = removed.last, !isLocked || !range.isExclusive {
                var freed = range
                (freed.start, freed.end) = (max(range.start, first.start), min(range.end, last.end))
                isAwaited = state.free(freed)
            }
            return (added.count - removed.count, isAwaited)
        }
    }

    /// Takes waiters off the lists that are answered, or are about to be by whoever took them.
    func sweep() {
        state.withLock { state in
            state.waiters.removeAll { $0.isTaken }
            state.wholeWaiters.removeAll { $0.isTaken }
            state.fresh.removeAll { $0.isTaken }
        }
    }
}

extension LockedFile.State {
    /// Notes that something is free now. Whether the scope's thread is to be told.
    mutating func free(_ range: LockedRange) -> Bool {
        if waiters.isEmpty { return false }
        if freed == nil { freed = range } else { freed!.widen(to: range) }
        return list()
    }

    /// The same of a lock of the whole (flock(2)).
    mutating func freeWhole() -> Bool {
        if wholeWaiters.isEmpty { return false }
        isWholeFreed = true
        return list()
    }

    /// Adds somebody who waits. Whether the scope's thread is to be told.
    mutating func add(_ waiter: LockWaiter) -> Bool {
        if waiter.range == nil {
            wholeWaiters.append(waiter)
            isWholeFreed = true
        } else {
            waiters.append(waiter)
            fresh.append(waiter)
        }
        return list()
    }

    private mutating func list() -> Bool {
        defer { isQueued = true }
        return !isQueued
    }

    /// Takes a description out, so that its owner gets another one.
    mutating func takeOut(_ description: LockDescription) {
        description.isGone = true
        owners[description.owner] = nil
        handles[description.handle]?.removeAll { $0 == description.owner }
        if handles[description.handle]?.isEmpty == true { handles[description.handle] = nil }
    }
}
