import GrantSystem

/// The locks of `RuledScope.names`, one for each filesystem.
///
/// Locking: its own, rank 2, held for a moment.
final class NamesLocks: Sendable {
    private let locks = Lock<[UInt64: SharedLock]>([:])

    func lock(of device: UInt64) -> SharedLock {
        locks.withLock { locks in
            if let known = locks[device] { return known }
            let made = SharedLock()
            locks[device] = made
            return made
        }
    }
}
