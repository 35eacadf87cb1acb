import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The right to mount at one place. Two commands that find it free at the same time would mount one view upon the other; so what a command finds
/// there holds for as long as it has this. It ends with the value, and with the process.
public struct MountingTurn: ~Copyable, Sendable {
    private let lock: FileLock
    private let file: String

    fileprivate init(lock: consuming FileLock, file: String) {
        self.lock = lock
        self.file = file
    }

    /// Lets the next one have it.
    public consuming func end() {}

    // Before the lock goes: who waits for it sees that this is not the file of that name any more, and makes one.
    deinit { unlink(file) }
}

extension Mountpoint {
    /// For how long another one's turn is waited for. Mounting takes milliseconds.
    private static let patience = 10.0

    /// Waits for commands of this store that mount here just now. `.mountFailed` when that takes too long, `.storeUnavailable` when no file can be
    /// made in the store's directory.
    ///
    /// Locking: the file's, see `FileLock`, until the value goes.
    public func takeTurn(in store: GrantStore) throws(GrantError) -> MountingTurn {
        // Any path makes a name that can be a file's. Should two places ever have the same, one waits for the other.
        let name = Hexadecimal.text(SipHash(key0: 0, key1: 0).hash(path))
        let file = "\(store.runDirectory)/mounting-\(name)"
        let deadline = Clock.deadline(seconds: Self.patience)
        while true {
            do throws(Errno) {
                return MountingTurn(lock: try FileLock.take(file, create: true), file: file)
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
