import Glibc

/// The table of this process's open descriptors.
public enum DescriptorTable {
    /// Makes it as large as most processes ever need it, or as they may have it. To be called before there is a second thread: the table of several threads grows
    /// only after a grace period of the kernel, ten milliseconds and more, each time that it is full.
    public static func grow() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0, limit.rlim_cur > 64 else { return }
        let last = Int32(clamping: min(limit.rlim_cur, 1024) - 1)
        let number = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, last)
        if number >= 0 { close(number) }
    }
}
