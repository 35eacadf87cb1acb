import GrantCoordinator
import GrantFUSE
import Glibc

/// The mount whose files are locked, as far as locks need it. It outlives all of them.
package protocol LockHost: AnyObject, Sendable {
    /// Whether somebody may still lock below a grant.
    var coordinator: Coordinator { get }
    /// What the threads that try for who waits pass before each turn.
    var pauseGate: PauseGate { get }

    /// flock(2) with LOCK_NB or LOCK_UN, on the description of an open file. 0, or a negative error number; -EBADF when the file is not
    /// open any more.
    func lockWhole(file: UInt64, operation: Int32) -> Int32
    /// Whether somebody else than programs of this mount may have changed the file of a node since the kernel has cached it. Asked after a
    /// lock was taken.
    func mustRevalidate(_ node: UInt64) -> Bool
    /// Makes the kernel see the file as it is now. May wait for the file's filesystem.
    func revalidate(_ node: UInt64)
    /// Makes the kernel write what is stored in mappings of the file. May wait for the file's filesystem.
    func writeBackData(_ node: UInt64)
}

/// Where it is recorded whose locks the daemon's descriptors carry, for the daemon that follows when this one dies.
package protocol LockRecorder: AnyObject, Sendable {
    /// Returns the number of the record; nil when there is no room for it.
    func add(_ record: LockRecord) -> UInt64?
    func remove(lock id: UInt64)
}

/// Who locks something in a file through which descriptor: the locks themselves are the descriptor's. It lies in memory that outlives the
/// daemon, as it stands here.
package struct LockRecord {
    package var scope: UInt32
    package var descriptor: Int32
    package var node: UInt64
    package var owner: UInt64
    package var handle: UInt64
    package var pid: pid_t
    package var uid: uid_t
}
