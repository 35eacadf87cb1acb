import Glibc

/// CLOCK_BOOTTIME, which cannot be set, and advances while the machine is suspended.
public enum BootClock {
    /// Nanoseconds since boot.
    public static var now: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return Int64(truncatingIfNeeded: time.tv_sec) &* 1_000_000_000 &+ Int64(truncatingIfNeeded: time.tv_nsec)
    }

    /// Sleeps until that time.
    ///
    /// If it passes during a suspension, the sleep ends when the machine wakes.
    public static func sleep(until moment: Int64) {
        var time = timespec(
            tv_sec: time_t(truncatingIfNeeded: max(0, moment) / 1_000_000_000),
            tv_nsec: Int(truncatingIfNeeded: max(0, moment) % 1_000_000_000))
        while clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &time, nil) == EINTR {}
    }
}

/// Short sleeps, for threads that serve no requests.
public enum ThreadSleep {
    public static func milliseconds(_ count: UInt32) { usleep(count &* 1_000) }
}
