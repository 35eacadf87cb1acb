import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// The locks below one grant, who waits for one, and what each user has of both.
///
/// Locking: its own lock, rank 3, held for a moment, above those of its files. What a grant's locks cost, only those pay who lock below it.
package final class ScopeLocks: @unchecked Sendable {
    // Safe to share: everything is behind `state`.
    let id: ScopeID
    /// Wakes the scope's thread.
    let wake = Semaphore()

    struct State {
        /// By node. Whoever is here is not `isGone`, and the node says that there is one (`Node.isLocked`).
        var files: [UInt64: LockedFile] = [:]
        var shares: [uid_t: LockShare] = [:]
        /// All who are not answered, by number.
        var waiters: [UInt64: LockWaiter] = [:]
        /// How many of them wait for somebody else's lock.
        var waiting = 0
        /// The thread that tries for them has this slot; nil when there is none.
        var slot: Int?
        /// What the thread is to look at, and who was interrupted.
        var queued: [LockedFile] = []
        var interrupted: [LockWaiter] = []
        /// Answered waiters that an interrupt under way may still look at; let go a while later, the first first.
        var retired: [(waiter: LockWaiter, since: Int64)] = []
        /// The first of `retired` that is still there.
        var firstRetired = 0
    }

    let state = Lock(State())

    init(id: ScopeID) { self.id = id }

    /// Has the scope's thread look at `file`, whose `isQueued` was set just now. Who waits has a thread; without one it is looked at when
    /// there is.
    func enqueue(_ file: LockedFile) {
        state.withLock { $0.queued.append(file) }
        wake.post()
    }

    /// The kernel says that a waiter is not to wait any longer. From whichever thread hears it, with a lock of the library's held.
    func enqueueInterrupted(_ waiter: LockWaiter) {
        state.withLock { $0.interrupted.append(waiter) }
        wake.post()
    }

    /// Takes a waiter off the list; whoever gets it answers it.
    func take(_ waiter: LockWaiter) -> Bool {
        let (isOurs, file) = state.withLock { state -> (Bool, LockedFile?) in
            guard state.waiters.removeValue(forKey: waiter.number) != nil else { return (false, nil) }
            state.ended(waiter)
            return (true, waiter.file)
        }
        file?.sweep()
        return isOurs
    }

    /// Takes all of them; `waiting`: only those who wait for somebody else's lock; `nodes`: only those who want these locked.
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

    /// Counts `more` locks of a user. `limit`: false, and nothing counted, when there were more than that.
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
    /// A waiter has been taken off the list.
    fileprivate mutating func ended(_ waiter: LockWaiter) {
        waiter.taken.store(true, ordering: .releasing)
        if waiter.isGranted { return }
        waiting -= 1
        shares[waiter.uid]?.waiting -= 1
        if shares[waiter.uid]?.isEmpty == true { shares[waiter.uid] = nil }
    }

    /// Lets go of waiters that were answered a while ago.
    mutating func forgetRetired() {
        let limit = Clock.monotonic - 5_000_000_000
        while firstRetired < retired.count, retired[firstRetired].since < limit { firstRetired += 1 }
        // Seldom, so that each is moved once or twice.
        if firstRetired > 64, firstRetired * 2 > retired.count {
            retired.removeFirst(firstRetired)
            firstRetired = 0
        }
    }
}

/// What one user has locked and waits for below one grant.
struct LockShare {
    /// Locked ranges, and one for each file and owner, which is a descriptor.
    var locks = 0
    /// Requests that wait for somebody else's lock.
    var waiting = 0

    var isEmpty: Bool { locks == 0 && waiting == 0 }

    /// How many there may be: semantics.md.
    static let (mostLocks, mostWaiting) = (16_384, 4_096)
}
