import Glibc
import GrantSystem

/// A file with locks of this mount, or with requests that wait for one.
///
/// Locking: its own lock, rank 3, held for a moment, below its scope's. Only programs that lock
/// this file contend for it.
final class LockedFile: @unchecked Sendable {
    // Sendable: mutable state is behind `state`, or belongs to the scope's thread.
    let node: UInt64
    let scope: ScopeLocks

    struct State {
        var owners: [UInt64: LockDescription] = [:]
        /// The owners whose descriptions were made for an open file.
        var handles: [UInt64: [UInt64]] = [:]
        var held = HeldRanges()
        /// Waiters in order of arrival: for ranges, and for the whole file (flock(2)).
        var waiters: [LockWaiter] = []
        var wholeWaiters: [LockWaiter] = []
        /// The waiters that the scope's thread has not handled yet.
        var fresh: [LockWaiter] = []
        /// The unlocked bytes since the scope's thread last ran, from the first to the last.
        ///
        /// `isWholeFreed`: whether a lock of the whole file has ended, or a request for one has
        /// come.
        var freed: LockedRange?
        var isWholeFreed = false
        /// Whether the scope's thread has the file in its queue.
        var isQueued = false
        /// Whether it was removed from its scope. A thread that still has it must get another one.
        var isGone = false

        var isEmpty: Bool { owners.isEmpty && waiters.isEmpty && wholeWaiters.isEmpty }
    }

    let state = Lock(State())

    /// Whether it has requests that must be polled, and the last one tried.
    ///
    /// Used by the scope's thread.
    var isPolled = false
    var lastTried: UInt64 = 0

    init(node: UInt64, scope: ScopeLocks) { (self.node, self.scope) = (node, scope) }

    /// Records that a range of `description` is locked or free now.
    ///
    /// Call it under the description's `order`. Returns by how many its ranges have grown, and
    /// whether a waiter may have the range now.
    func update(_ range: LockedRange, of description: LockDescription, isLocked: Bool) -> (more: Int, isAwaited: Bool) {
        state.withLock { state in
            // Its owner cannot be found any more. The lock ends with its last user.
            if description.isGone, isLocked { return (0, false) }
            let (removed, added) = description.ranges.set(range, isLocked: isLocked)
            state.held.change(description, removed: removed, added: added)
            var isAwaited = false
            // Also a range that is shared from now on.
            if let first = removed.first, let last = removed.last, !isLocked || !range.isExclusive {
                var freed = range
                (freed.start, freed.end) = (max(range.start, first.start), min(range.end, last.end))
                isAwaited = state.free(freed)
            }
            return (added.count - removed.count, isAwaited)
        }
    }

    /// Removes waiters that are answered or were taken for it.
    func sweep() {
        state.withLock { state in
            state.waiters.removeAll { $0.isTaken }
            state.wholeWaiters.removeAll { $0.isTaken }
            state.fresh.removeAll { $0.isTaken }
        }
    }
}

extension LockedFile.State {
    /// Records that a range is free now. Returns whether the scope's thread must be woken.
    mutating func free(_ range: LockedRange) -> Bool {
        if waiters.isEmpty { return false }
        if freed == nil { freed = range } else { freed!.widen(to: range) }
        return list()
    }

    /// Does the same for a lock of the whole file (flock(2)).
    mutating func freeWhole() -> Bool {
        if wholeWaiters.isEmpty { return false }
        isWholeFreed = true
        return list()
    }

    /// Adds a waiter. Returns whether the scope's thread must be woken.
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

    /// Removes a description, so that its owner gets another one.
    mutating func takeOut(_ description: LockDescription) {
        description.isGone = true
        owners[description.owner] = nil
        handles[description.handle]?.removeAll { $0 == description.owner }
        if handles[description.handle]?.isEmpty == true { handles[description.handle] = nil }
    }
}
