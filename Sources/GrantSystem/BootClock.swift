import Glibc

/// The clock that nobody sets and that goes on while the machine is suspended (CLOCK_BOOTTIME).
public enum BootClock {
    /// Nanoseconds since the machine was started.
    public static var now: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return Int64(truncatingIfNeeded: time.tv_sec) &* 1_000_000_000 &+ Int64(truncatingIfNeeded: time.tv_nsec)
    }

    /// Sleeps until that moment; one that has passed during a suspension ends the sleep when the machine wakes.
    public static func sleep(until moment: Int64) {
        var time = timespec(
            tv_sec: time_t(truncatingIfNeeded: max(0, moment) / 1_000_000_000),
            tv_nsec: Int(truncatingIfNeeded: max(0, moment) % 1_000_000_000))
        while clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &time, nil) == EINTR {}
    }
}

/// Short sleeps of threads that serve nobody.
public enum WorkerPause {
    public static func milliseconds(_ count: UInt32) { usleep(count &* 1_000) }
}
