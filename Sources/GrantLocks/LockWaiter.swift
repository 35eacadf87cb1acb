import GrantCoordinator
import GrantFUSE
import Glibc
import Synchronization

/// Somebody who waits for a lock, or has one and waits for the kernel's view of the file.
package final class LockWaiter: @unchecked Sendable {
    // Safe to share: `request` belongs to whoever took the waiter off its scope's list; the flags are atomic; the rest says whose it is.
    let scope: ScopeLocks
    let node: UInt64
    let uid: uid_t
    /// What it waits in; nil before it does. Under the scope's lock.
    var file: LockedFile?
    /// It has its lock, or gives it up.
    let isGranted: Bool
    /// Of a lock of a range: whose and which.
    let owner: UInt64
    let range: LockedRange?
    /// Until it is answered: what it would lock must not stay open for its sake. Under the scope's lock.
    var lockRequest: LockRequest?
    var request: DetachedRequest?
    /// The request as the kernel wrote it, for the daemon that comes next: it does it again, and whoever has his lock or has given it up
    /// gets the same.
    let message: [UInt8]
    let interrupted = Atomic<Bool>(false)
    /// Whether somebody took it off the list, and answers it.
    let taken = Atomic<Bool>(false)
    /// What it is answered when its grant is withdrawn. Set before it is shared.
    var refusal = EACCES
    /// Larger than that of everybody who waited before. Set before it is shared.
    var number: UInt64 = 0
    /// The one that waited for what this one has got: an interrupt under way may still look at it.
    var earlier: LockWaiter?
    /// How often in a row it seemed to be in a deadlock. Of the scope's thread.
    var suspicions = 0
    /// Whether somebody who is not of this mount is in its way, so that it has to be tried for; and whether it is looked at for circles. Of
    /// the scope's thread.
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
