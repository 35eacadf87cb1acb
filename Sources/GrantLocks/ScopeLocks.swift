import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// The locks and waiting requests below one grant, and each user's share of both.
///
/// Locking: its own lock, rank 3, held for a moment, above those of its files. Only programs that
/// lock below this grant contend for it.
package final class ScopeLocks: @unchecked Sendable {
    // Sendable: everything is behind `state`.
    let id: ScopeID
    /// Wakes the scope's thread.
    let wake = Semaphore()

    struct State {
        /// By node. A file in this table is not `isGone`, and its node has `Node.isLocked`.
        var files: [UInt64: LockedFile] = [:]
        var shares: [uid_t: LockShare] = [:]
        /// All unanswered waiters, by number.
        var waiters: [UInt64: LockWaiter] = [:]
        /// How many of them wait for another owner's lock.
        var waiting = 0
        /// The slot of the thread that retries them. It is nil if there is none.
        var slot: Int?
        /// The files and the interrupted waiters that the thread must handle.
        var queued: [LockedFile] = []
        var interrupted: [LockWaiter] = []
        /// Answered waiters that a running interrupt may still access.
        ///
        /// They are dropped after some seconds, in order.
        var retired: [(waiter: LockWaiter, since: Int64)] = []
        /// The first of `retired` that is not dropped yet.
        var firstRetired = 0
    }

    let state = Lock(State())

    init(id: ScopeID) { self.id = id }

    /// Queues `file` for the scope's thread. Its `isQueued` was set just now.
    ///
    /// A scope with waiters has a thread. Without one the file is handled when there is a thread.
    func enqueue(_ file: LockedFile) {
        state.withLock { $0.queued.append(file) }
        wake.post()
    }

    /// Queues a waiter that the kernel has interrupted.
    ///
    /// Called by any thread, with a lock of the library held.
    func enqueueInterrupted(_ waiter: LockWaiter) {
        state.withLock { $0.interrupted.append(waiter) }
        wake.post()
    }

    /// Takes a waiter off the list. Its taker answers it.
    func take(_ waiter: LockWaiter) -> Bool {
        let (isOurs, file) = state.withLock { state -> (Bool, LockedFile?) in
            guard state.waiters.removeValue(forKey: waiter.number) != nil else { return (false, nil) }
            state.ended(waiter)
            return (true, waiter.file)
        }
        file?.sweep()
        return isOurs
    }

    /// Takes all waiters.
    ///
    /// `waiting`: only those that wait for another owner's lock. `nodes`: only those for these
    /// files.
    func takeAll(waiting: Bool = false, of nodes: Set<UInt64>? = nil) -> [LockWaiter] {
        let (waiters, files) = state.withLock { state -> ([LockWaiter], [LockedFile]) in
            let waiters = state.waiters.values.filter { (!waiting || !$0.isGranted) && nodes?.contains($0.node) != false }.sorted {
                $0.number < $1.number
            }
            for waiter in waiters {
                state.waiters[waiter.number] = nil
                state.ended(waiter)
            }
            return (waiters, waiters.compactMap(\.file))
        }
        var swept: Set<UInt64> = []
        for file in files where swept.insert(file.node).inserted { file.sweep() }
        return waiters
    }

    func file(of waiter: LockWaiter) -> LockedFile? { state.withLock { _ in waiter.file } }

    /// Counts `more` locks of a user.
    ///
    /// Returns false without counting if there would be more than `limit`.
    func count(_ more: Int, of uid: uid_t, limit: Int = .max) -> Bool {
        state.withLock { state in
            guard (state.shares[uid]?.locks ?? 0) + more <= limit else { return false }
            state.shares[uid, default: LockShare()].locks += more
            if state.shares[uid]!.isEmpty { state.shares[uid] = nil }
            return true
        }
    }

    func locks(of uid: uid_t) -> Int { state.withLock { $0.shares[uid]?.locks ?? 0 } }
}

extension ScopeLocks.State {
    /// Records that a waiter was taken off the list.
    fileprivate mutating func ended(_ waiter: LockWaiter) {
        waiter.taken.store(true, ordering: .releasing)
        if waiter.isGranted { return }
        waiting -= 1
        shares[waiter.uid]?.waiting -= 1
        if shares[waiter.uid]?.isEmpty == true { shares[waiter.uid] = nil }
    }

    /// Drops waiters that were answered some seconds ago.
    mutating func forgetRetired() {
        let limit = Clock.monotonic - 5_000_000_000
        while firstRetired < retired.count, retired[firstRetired].since < limit { firstRetired += 1 }
        // Rarely, so that each is moved once or twice.
        if firstRetired > 64, firstRetired * 2 > retired.count {
            retired.removeFirst(firstRetired)
            firstRetired = 0
        }
    }
}

/// The locks and waiting requests of one user below one grant.
struct LockShare {
    /// Locked ranges, and one for each file and owner, which is a descriptor.
    var locks = 0
    /// Requests that wait for another owner's lock.
    var waiting = 0

    var isEmpty: Bool { locks == 0 && waiting == 0 }

    /// The limits: docs/semantics.md.
    static let (mostLocks, mostWaiting) = (16_384, 4_096)
}
