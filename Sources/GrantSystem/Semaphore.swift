import CGrantSystem
import Glibc

/// A counting semaphore, see sem_overview(7). `post` may be called from any thread and never waits.
public final class Semaphore: @unchecked Sendable {
    // Sendable: a semaphore synchronizes threads.
    private let semaphore: UnsafeMutablePointer<sem_t>

    public init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    public func post() { sem_post(semaphore) }

    /// Waits for a post.
    public func wait() { while sem_wait(semaphore) != 0, errno == EINTR {} }

    /// Waits for one post or until `deadline`. Returns whether there was one.
    ///
    /// The deadline is of `Clock.monotonic`, so setting the clock has no effect.
    public func wait(until deadline: Int64) -> Bool {
        while true {
            switch clinux_semaphore_wait(semaphore, max(0, deadline)) {
            case 0: return true
            case -EINTR: continue
            default: return false
            }
        }
    }

    /// Waits for a post or the timeout, then drains all further posts.
    public func waitForAny(within milliseconds: Int) {
        _ = wait(until: Clock.monotonic &+ Int64(truncatingIfNeeded: milliseconds) &* 1_000_000)
        drain()
    }

    /// Waits for a post, then drains all further posts.
    public func waitForAny() {
        wait()
        drain()
    }

    private func drain() { while sem_trywait(semaphore) == 0 {} }
}
