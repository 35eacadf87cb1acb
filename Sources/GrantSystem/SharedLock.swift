import Glibc

/// A lock that several threads can share, or one can have alone.
///
/// It is alone for at most half of the time: after that it is shared for as long.
public final class SharedLock: @unchecked Sendable {
    // Sendable: it is the kernel's.
    private let lock: UnsafeMutablePointer<pthread_rwlock_t>
    /// When a thread may have it alone again. Held by the thread that has it alone, or waits for it.
    private let next = Lock<Int64>(0)

    public init() {
        lock = .allocate(capacity: 1)
        lock.initialize(to: pthread_rwlock_t())
        // Otherwise threads that share it could keep it for ever. It is not recursive.
        var attributes = pthread_rwlockattr_t()
        pthread_rwlockattr_init(&attributes)
        pthread_rwlockattr_setkind_np(&attributes, Int32(truncatingIfNeeded: PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP))
        pthread_rwlock_init(lock, &attributes)
    }

    deinit {
        pthread_rwlock_destroy(lock)
        lock.deallocate()
    }

    public func share<Result>(_ body: () -> Result) -> Result {
        pthread_rwlock_rdlock(lock)
        defer { pthread_rwlock_unlock(lock) }
        return body()
    }

    public func exclude<Result>(_ body: () -> Result) -> Result {
        next.withLock { next in
            while case let left = next &- Clock.monotonic, left > 0 { usleep(UInt32(clamping: left / 1_000 &+ 1)) }
            pthread_rwlock_wrlock(lock)
            let began = Clock.monotonic
            defer {
                pthread_rwlock_unlock(lock)
                let now = Clock.monotonic
                next = now &+ (now &- began)
            }
            return body()
        }
    }
}
