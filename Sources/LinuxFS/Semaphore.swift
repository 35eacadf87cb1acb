import Glibc

/// A counting semaphore, see sem_overview(7). `post` may be called from any thread and never waits.
public final class Semaphore: @unchecked Sendable {
    // Safe to share: that is what a semaphore is for.
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

    /// Waits for one post, or until `deadline` (`Clock.monotonic`); whether there was one.
    public func wait(until deadline: Int64) -> Bool {
        let (sum, isBeyond) = Clock.realtime.addingReportingOverflow(max(0, deadline &- Clock.monotonic))
        let time = isBeyond ? Int64.max : sum
        var until = timespec(tv_sec: Int(truncatingIfNeeded: time / 1_000_000_000), tv_nsec: Int(truncatingIfNeeded: time % 1_000_000_000))
        while sem_timedwait(semaphore, &until) != 0 {
            if errno != EINTR { return false }
        }
        return true
    }

    /// Waits for a post, or until the time is over. Further posts that have come are used up as well.
    public func waitForAny(within milliseconds: Int) {
        var until = timespec()
        clock_gettime(CLOCK_REALTIME, &until)
        until.tv_nsec += milliseconds * 1_000_000
        until.tv_sec += until.tv_nsec / 1_000_000_000
        until.tv_nsec %= 1_000_000_000
        while sem_timedwait(semaphore, &until) != 0, errno == EINTR {}
        drain()
    }

    /// Waits for a post, and uses up all that have come.
    public func waitForAny() {
        wait()
        drain()
    }

    private func drain() { while sem_trywait(semaphore) == 0 {} }
}
