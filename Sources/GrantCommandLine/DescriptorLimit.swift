import Glibc
import GrantSystem

/// The limit of open files of this process.
package enum DescriptorLimit {
    /// Raises RLIMIT_NOFILE to its hard limit and returns the new one. Root's daemon also raises the hard limit as far as the kernel allows
    /// (fs.nr_open), because all files that programs open in the mount are open here. A hard limit below the kernel's default of 4,096
    /// (INR_OPEN_MAX) was set on purpose and stays.
    package static func raise() -> Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        let most = rlim_t(1 << 20)
        if geteuid() == 0, limit.rlim_max >= 4096, limit.rlim_max < most {
            let text = (try? File.contents(of: "/proc/sys/fs/nr_open".utf8)) ?? []
            let possible = min(most, rlim_t(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self)) ?? 0)
            var higher = rlimit(rlim_cur: possible, rlim_max: possible)
            if possible > limit.rlim_max, setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &higher) == 0 { limit = higher }
        }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return Int(truncatingIfNeeded: min(limit.rlim_cur, 1 << 20))
    }
}
