import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The lock on mounting at one place. Without it, two commands could both find the mountpoint free and mount one view over the other.
/// What a command finds there is valid while it has the lock. It is released with the value, or by the kernel with the process.
public struct MountLock: ~Copyable, Sendable {
    private let lock: FileLock
    private let file: String

    fileprivate init(lock: consuming FileLock, file: String) {
        self.lock = lock
        self.file = file
    }

    /// Releases the lock.
    public consuming func end() {}

    // Before the unlock: a waiter then sees that its file has no name any more, and makes a new one.
    deinit { unlink(file) }
}

extension Mountpoint {
    /// How long to wait for another command, in seconds. Mounting takes milliseconds.
    private static let lockTimeout = 10.0

    /// Waits for other commands of this store that mount here. Throws `.mountFailed` if that takes
    /// too long, `.storeUnavailable` if no lock file can be made in the store's directory.
    ///
    /// Locking: the file's, see `FileLock`, until the value's end.
    public func lockForMounting(in store: GrantStore) throws(GrantError) -> MountLock {
        // The hash makes any path a file name. If two paths had the same hash, one would wait for the other.
        let name = Hexadecimal.text(SipHash(key0: 0, key1: 0).hash(path))
        let file = "\(store.runDirectory)/mounting-\(name)"
        let deadline = Clock.deadline(seconds: Self.lockTimeout)
        while true {
            do throws(Errno) {
                return MountLock(lock: try FileLock.take(file, create: true), file: file)
            } catch {
                guard error == Errno(EWOULDBLOCK) else {
                    throw GrantError(
                        .storeUnavailable, "nothing can be mounted from the store \(store.directory)", cause: "\(file): \(error)")
                }
                guard Clock.monotonic < deadline else {
                    throw GrantError(
                        .mountFailed, "\(shown) cannot be a mountpoint", cause: "another command is mounting there", advice: "try again")
                }
                usleep(10_000)
            }
        }
    }
}
