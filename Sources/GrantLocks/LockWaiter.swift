import GrantCoordinator
import GrantFUSE
import Glibc
import Synchronization

/// A request that waits for a lock, or has it and waits for a fresh cache.
package final class LockWaiter: @unchecked Sendable {
    // Sendable: `request` belongs to the thread that took the waiter off its list. Flags are
    // atomic. Other fields are fixed, locked, or belong to the scope's thread.
    let scope: ScopeLocks
    let node: UInt64
    let uid: uid_t
    /// The file it waits in. nil before it waits. Under the scope's lock.
    var file: LockedFile?
    /// Whether it has its lock, or gives it up.
    let isGranted: Bool
    /// For a lock of a range: its owner and range.
    let owner: UInt64
    let range: LockedRange?
    /// The requested lock. nil once the request is answered.
    ///
    /// It must not keep a description open longer. Under the scope's lock.
    var lockRequest: LockRequest?
    var request: DetachedRequest?
    /// The request as the kernel wrote it, for the next daemon.
    ///
    /// That daemon carries it out again. A request that already has its lock, or has given it up,
    /// gets the same result.
    let message: [UInt8]
    let interrupted = Atomic<Bool>(false)
    /// Whether a thread took it off the list and answers it.
    let taken = Atomic<Bool>(false)
    /// The reply if its grant is withdrawn. Set before it is shared.
    var refusal = EACCES
    /// Larger than the number of every earlier waiter. Set before it is shared.
    var number: UInt64 = 0
    /// The waiter that waited for this lock. A running interrupt may still access it.
    var earlier: LockWaiter?
    /// How often in a row it seemed to be in a deadlock. Used by the scope's thread.
    var suspicions = 0
    /// Whether it must be polled, and whether it is checked for deadlocks.
    ///
    /// It must be polled if an owner outside of this mount blocks it. Used by the scope's thread.
    var (isPolled, isWatched) = (false, false)

    var isTaken: Bool { taken.load(ordering: .acquiring) }

    package init(
        scope: ScopeLocks, node: UInt64, uid: uid_t, lockRequest: LockRequest, isGranted: Bool = false, message: [UInt8] = [],
        request: consuming DetachedRequest?
    ) {
        self.message = message
        (self.scope, self.node, self.uid, self.isGranted) = (scope, node, uid, isGranted)
        switch lockRequest {
        case .range(let description, let range): (owner, self.range) = (description.owner, range)
        case .whole: (owner, range) = (0, nil)
        }
        self.lockRequest = lockRequest
        self.request = consume request
    }
}
