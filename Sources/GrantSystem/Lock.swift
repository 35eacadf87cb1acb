import CGrantSystem
import Glibc

/// A mutex around its state. A pthread mutex, because the thread sanitizer understands it.
///
/// Locking: the rank of each lock is in docs/ARCHITECTURE.md. `withLock` is not recursive.
public final class Lock<State>: @unchecked Sendable {
    // Safe to share: `state` is touched only between lock and unlock.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private var state: State

    public init(_ state: consuming State) {
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
        self.state = state
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    public func withLock<Result: ~Copyable, Failure: Error>(_ body: (inout State) throws(Failure) -> Result) throws(Failure) -> Result {
        pthread_mutex_lock(mutex)
        clinux_lock_acquired()
        defer {
            clinux_lock_released()
            pthread_mutex_unlock(mutex)
        }
        return try body(&state)
    }
}
