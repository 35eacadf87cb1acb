import CGrantSystem
import Glibc
import GrantSystem

/// With whose rights and whose umask the calling worker acts: its fsuid, fsgid and umask, changed by raw calls on this thread
/// alone and only when the caller is another one than before. Capabilities stay (SECBIT_NO_SETUID_FIXUP): the kernel in front
/// has checked permissions with the caller's own groups (`default_permissions`), and what is created must belong to the caller.
public enum Identity {
    /// Whether it has root's rights to files, whomever it acts for.
    public static var isRoots: Bool { canChange }

    /// Whether the daemon may take on other identities at all: it has CAP_SETUID and CAP_SETGID.
    // Safe to share: written once, by `prepareProcess`, before there are threads.
    nonisolated(unsafe) static var canChange = false

    /// Whether what the daemon does for others has their rights: it takes on their identity, or it has no more rights than any user.
    public static var isSafeForOthers: Bool { canChange || geteuid() != 0 }

    /// Whether threads can be given umasks of their own: a filter of system calls around the daemon may refuse it. Gives the calling thread one.
    public static var canHaveOwnMask: Bool { clinux_thread_unshare_fs() == 0 }

    /// To be called once, before the first thread is made.
    public static func prepareProcess() {
        let (setgid, setuid): (Int32, Int32) = (6, 7)
        guard ProcessCapability.has(setgid), ProcessCapability.has(setuid) else { return }
        canChange = clinux_keep_capabilities_across_setuid() == 0
        // Whose groups and capabilities are hidden counts as somebody without any.
        let proc = try? MountTable.current().entry(mountpoint: Array("/proc".utf8))
        if proc?.superOptions.contains("hidepid=") == true { _ = clinux_open_own_proc() }
    }

    /// Makes the thread act as `caller`. Returns 0, or the error number of what the kernel refused.
    ///
    /// `groups`: with the caller's supplementary groups as well, for a server that checks by itself. That reads from /proc each time: the groups of
    /// a process can change, and a thread's number can be used again.
    @inline(__always)
    public static func assume(_ caller: Caller, groups: Bool = false) -> Int32 {
        let current = clinux_identity()
        if !canChange || (current.uid == caller.uid && current.gid == caller.gid && !current.has_groups && !groups) { return 0 }
        return change(to: caller, groups: groups)
    }

    /// Gives the thread the caller's umask: what it creates gets its mode from the backing file system, which leaves the umask
    /// out of account where a default ACL stands in for it.
    public static func assumeMask(_ mask: mode_t) {
        var current = clinux_identity()
        guard current.umask != mask else { return }
        _ = clinux_thread_umask(mask)
        current.umask = mask
        clinux_set_identity(current)
    }

    /// Whether what the thread changes keeps set-id bits, as for callers with CAP_FSETID, or clears them as the backing file system does for
    /// everybody else. That it clears file capabilities in either case is its own doing.
    @inline(__always)
    public static func keepSetID(_ keeps: Bool) {
        let current = clinux_identity()
        if current.keeps_set_id != keeps { change(toKeepSetID: keeps) }
    }

    /// Runs `body` with no capability that `caller` has not: for what the kernel in front does not check, or did not on older kernels.
    public static func asPrivileged(as caller: Caller, _ body: () -> Int32) -> Int32 {
        var before: UInt64 = 0
        let result = clinux_thread_limit_capabilities(caller.capabilities, &before)
        if result < 0 { return result }
        defer { _ = clinux_thread_limit_capabilities(before, nil) }
        return body()
    }

    /// Runs `body`, which may take up space: first as anybody, since workers act without CAP_SYS_RESOURCE, and when there is no room for anybody, once more
    /// with what `caller` has: that capability, or the group that a filesystem reserves space for. Returns what `body` does, a negative error number or a count.
    ///
    /// Nothing is looked up and nothing switched as long as there is room. What the reserve is for is the filesystem's to say (ext4's reserved blocks,
    /// limits of quotas); it takes the file's new owner's word through the thread's fsuid, which is the caller's.
    @inline(__always)
    public static func withReserve<Result: FixedWidthInteger>(of caller: Caller, _ body: () -> Result) -> Result {
        let result = body()
        return result == Result(truncatingIfNeeded: -ENOSPC) || result == Result(truncatingIfNeeded: -EDQUOT)
            ? again(as: caller, result, body) : result
    }

    @inline(never)
    private static func again<Result: FixedWidthInteger>(as caller: Caller, _ result: Result, _ body: () -> Result) -> Result {
        // Otherwise the thread has the rights of the daemon's user, whoever asks.
        guard canChange, caller.pid > 0 else { return result }
        let hadGroups = clinux_identity().has_groups
        guard change(to: caller, groups: true) == 0 else { return result }
        let mayExceed = caller.has(capability: resources)
        if mayExceed { _ = clinux_thread_use_capability(resources, true) }
        defer {
            if mayExceed { _ = clinux_thread_use_capability(resources, false) }
            // Nobody else's request finds them, whatever it assumes.
            _ = change(to: caller, groups: hadGroups)
        }
        return body()
    }

    private static func change(toKeepSetID keeps: Bool) {
        // A daemon that never had the capability keeps no bits, whatever is asked for; giving it up cannot fail.
        _ = clinux_thread_use_capability(fsetid, keeps)
        var current = clinux_identity()
        current.keeps_set_id = keeps
        clinux_set_identity(current)
    }

    private static let fsetid: Int32 = 4
    private static let systemAdministration: Int32 = 21
    private static let resources: Int32 = 24

    private static func change(to caller: Caller, groups: Bool) -> Int32 {
        let group = clinux_thread_setfsgid(caller.gid)
        var user = group == 0 ? clinux_thread_setfsuid(caller.uid) : group
        var current = clinux_identity()
        // Nobody acts with the groups of the one before.
        if user == 0, groups || current.has_groups {
            user = groups ? clinux_thread_take_groups(caller.pid) : clinux_thread_setgroups(nil, 0)
        }
        current.has_groups = groups || (user != 0 && current.has_groups)
        // After a refusal the identity is unknown; a value no caller has makes the next one try again.
        current.uid = user == 0 ? caller.uid : .max
        current.gid = user == 0 ? caller.gid : .max
        clinux_set_identity(current)
        return user < 0 ? Errno.number(of: user) : 0
    }

    /// Begins a thread as the daemon itself. A thread inherits the identity of the one that made it, and that may be a worker which acts
    /// for somebody else just then; its umask it even shares with that one (clone(2), CLONE_FS), so it gets one of its own first. Without that nothing
    /// could be made for anybody with the right mode, so the daemon ends; it looks before it mounts (`canHaveOwnMask`).
    public static func resetOnThisThread() {
        guard canHaveOwnMask else { fatalError("the kernel gives a thread no umask of its own") }
        _ = clinux_thread_umask(0)
        // What mounting and watching take is not for who serves requests.
        _ = clinux_capability_drop(systemAdministration)
        // Space that is kept for who has it is not for those whom the thread acts for: see `withReserve`.
        if canChange { _ = clinux_thread_use_capability(resources, false) }
        // CAP_FSETID is inherited as well.
        _ = clinux_thread_use_capability(fsetid, true)
        if canChange { _ = clinux_thread_setgroups(nil, 0) }
        var identity = clinux_thread_identity(uid: geteuid(), gid: getegid(), umask: 0, keeps_set_id: true, has_groups: false)
        if canChange, clinux_thread_setfsgid(identity.gid) != 0 || clinux_thread_setfsuid(identity.uid) != 0 {
            // Unknown: a value no caller has makes the first request set it.
            identity.uid = .max
            identity.gid = .max
        }
        clinux_set_identity(identity)
    }
}
