import CGrantSystem
import Glibc

/// Acting with the rights of another user, on the calling thread alone.
public enum ThreadRights {
    /// Runs `body` with the file access of `user` and `group`.
    ///
    /// It has no capabilities and no supplementary groups. Only root can assume another user's
    /// rights. For every other user, and for root's own rights, `body` runs unchanged.
    ///
    /// - Throws: EPERM if the kernel refuses, before `body` runs.
    public static func acting<Result>(
        as user: uid_t, _ group: gid_t, _ body: () throws(Errno) -> Result
    ) throws(Errno) -> Result {
        if geteuid() != 0 || user == 0 { return try body() }
        var groups = [gid_t](repeating: 0, count: Int(clamping: max(0, getgroups(0, nil))))
        let count = getgroups(Int32(clamping: groups.count), &groups)
        groups.removeLast(groups.count - min(groups.count, Int(clamping: max(0, count))))
        var capabilities: UInt64 = 0
        _ = try Errno.check(clinux_thread_limit_capabilities(.max, &capabilities))
        defer {
            // In this order: without its capabilities the thread may only return to its own ids.
            _ = clinux_thread_setfsuid(0)
            _ = clinux_thread_setfsgid(getegid())
            _ = clinux_thread_limit_capabilities(.max, nil)
            _ = clinux_thread_setgroups(groups, groups.count)
            _ = clinux_thread_limit_capabilities(capabilities, nil)
        }
        _ = try Errno.check(clinux_thread_setgroups(nil, 0))
        _ = try Errno.check(clinux_thread_setfsgid(group))
        _ = try Errno.check(clinux_thread_setfsuid(user))
        _ = try Errno.check(clinux_thread_limit_capabilities(0, nil))
        return try body()
    }
}
