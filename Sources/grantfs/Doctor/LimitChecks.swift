import GrantCommandSupport
import Glibc
import GrantSystem

/// Checks the limits of resources that mounts use.
enum LimitChecks {
    static func run() -> [Finding] { [descriptors, pages, watches, instances].compactMap { $0 } }

    private static var descriptors: Finding {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            return .note("descriptors", "their limit is not known")
        }
        let most = limit.rlim_max
        if most >= 4096 {
            return .ok("descriptors", "a daemon may have \(most == rlim_t.max ? "any number of" : String(most)) descriptors")
        }
        return .note(
            "descriptors", "a daemon may have \(most) descriptors: large trees are slower",
            "raise the hard limit (ulimit -Hn, LimitNOFILE=)")
    }

    /// The maximum size of a request: 256 pages are 1 MiB.
    private static var pages: Finding? {
        guard let pages = File.line(of: "/proc/sys/fs/fuse/max_pages_limit").flatMap({ Int($0) }) else { return nil }
        if pages >= 256 { return .ok("pages", "a request may carry \(pages) pages") }
        return .note("pages", "a request may carry \(pages) pages only: large files are slower", "sysctl fs.fuse.max_pages_limit=256")
    }

    private static var watches: Finding? {
        // Root uses fanotify, which needs none.
        if ProcessCapability.has(21) { return nil }
        guard let most = File.line(of: "/proc/sys/fs/inotify/max_user_watches").flatMap({ Int($0) }) else { return nil }
        if most >= 16_384 { return .ok("watches", "changes can be watched for in \(most / 2) directories") }
        return .note(
            "watches", "changes beside a mount can be watched in \(most / 2) directories. Elsewhere they show within a second",
            "sysctl fs.inotify.max_user_watches=524288")
    }

    private static var instances: Finding? {
        if ProcessCapability.has(21) { return nil }
        do {
            _ = try ChangeWatch(.directories)
            return nil
        } catch {
            return .note(
                "inotify", "inotify cannot be used: \(error). Changes beside a mount show within a second",
                "sysctl fs.inotify.max_user_instances=1024")
        }
    }
}
