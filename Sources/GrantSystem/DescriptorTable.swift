import Glibc

/// The table of this process's open descriptors.
public enum DescriptorTable {
    /// Grows the table to the size that most processes ever need, within the limit.
    ///
    /// Call it before a second thread exists. The table of a process with threads grows only after
    /// an RCU grace period, ten milliseconds and more, each time that it is full.
    public static func grow() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0, limit.rlim_cur > 64 else { return }
        let last = Int32(clamping: min(limit.rlim_cur, 1024) - 1)
        let number = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, last)
        if number >= 0 { close(number) }
    }
}
