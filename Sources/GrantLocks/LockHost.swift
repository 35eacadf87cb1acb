import GrantCoordinator
import GrantFUSE
import Glibc

/// The mount whose files are locked, as far as locks need it. It outlives them.
package protocol LockHost: AnyObject, Sendable {
    /// Tells whether a grant still admits locks.
    var coordinator: Coordinator { get }
    /// The gate that the retrying threads pass before each turn.
    var pauseGate: PauseGate { get }

    /// flock(2) with LOCK_NB or LOCK_UN, on the description of an open file.
    ///
    /// Returns 0 or a negative error number, -EBADF if the file is no longer open.
    func lockWhole(file: UInt64, operation: Int32) -> Int32
    /// Whether another program than those of this mount may have changed a node's file.
    ///
    /// It may have done so since the kernel has cached the file. Call it after a lock was taken.
    func mustRevalidate(_ node: UInt64) -> Bool
    /// Makes the kernel reload the file. May wait for the file's filesystem.
    func revalidate(_ node: UInt64)
    /// Makes the kernel write back the file's mapped data. May wait for the file's filesystem.
    func writeBackData(_ node: UInt64)
}

/// Records the owners of the locks that the daemon's descriptors carry.
///
/// The next daemon needs the records if this one dies.
package protocol LockRecorder: AnyObject, Sendable {
    /// Returns the number of the record, or nil if there is no room for it.
    func add(_ record: LockRecord) -> UInt64?
    func remove(lock id: UInt64)
}

/// The owner of locks, and the descriptor that carries them.
///
/// It lies in this form in memory that outlives the daemon. The descriptor itself has the locks.
package struct LockRecord {
    package var scope: UInt32
    package var descriptor: Int32
    package var node: UInt64
    package var owner: UInt64
    package var handle: UInt64
    package var pid: pid_t
    package var uid: uid_t
}
