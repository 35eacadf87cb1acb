import CGrantSystem
import Glibc
import GrantSystem

/// The rights and the umask with which the calling worker acts.
///
/// They are fsuid, fsgid and umask, changed by raw calls for this thread alone, and only if the
/// caller differs from the previous one. Capabilities stay (SECBIT_NO_SETUID_FIXUP): the kernel in
/// front has checked permissions with the caller's own groups (`default_permissions`), and created
/// files must belong to the caller.
public enum Identity {
    /// Whether the thread has root's access to files, independent of its caller.
    public static var isRoots: Bool { canChange }

    /// Whether the daemon can assume other identities: it has CAP_SETUID and CAP_SETGID.
    // Safe without a lock: written once, by `prepareProcess`, before there are threads.
    nonisolated(unsafe) static var canChange = false

    /// Whether operations run with no more than their caller's rights.
    ///
    /// The daemon assumes the identity, or it has no more rights than any user.
    public static var isSafeForOthers: Bool { canChange || geteuid() != 0 }

    /// Whether threads can have umasks of their own. Gives the calling thread one.
    ///
    /// A filter of system calls may forbid that.
    public static var canHaveOwnMask: Bool { clinux_thread_unshare_fs() == 0 }

    /// Prepares the process. Call it once, before the first thread is made.
    public static func prepareProcess() {
        let (setgid, setuid): (Int32, Int32) = (6, 7)
        guard ProcessCapability.has(setgid), ProcessCapability.has(setuid) else { return }
        canChange = clinux_keep_capabilities_across_setuid() == 0
        // Callers whose groups and capabilities are hidden count as having none.
        let proc = try? MountTable.current().entry(mountpoint: Array("/proc".utf8))
        if proc?.superOptions.contains(part: "hidepid=") == true { _ = clinux_open_own_proc() }
    }

    /// Makes the thread act as `caller`. Returns 0 or the error number of the refused call.
    ///
    /// - Parameter groups: Assumes the caller's supplementary groups as well, for a server that
    ///   checks permissions itself. That reads /proc each time, because a process can change its
    ///   groups, and thread numbers are reused.
    @inline(__always)
    public static func assume(_ caller: Caller, groups: Bool = false) -> Int32 {
        let current = clinux_identity()
        if !canChange || (current.uid == caller.uid && current.gid == caller.gid && !current.has_groups && !groups) { return 0 }
        return change(to: caller, groups: groups)
    }

    /// Gives the thread the caller's umask.
    ///
    /// The backing filesystem applies it to new files, and ignores it if a default ACL takes its
    /// place.
    public static func assumeMask(_ mask: mode_t) {
        var current = clinux_identity()
        guard current.umask != mask else { return }
        _ = clinux_thread_umask(mask)
        current.umask = mask
        clinux_set_identity(current)
    }

    /// Sets whether the thread's changes keep set-id bits, as for callers with CAP_FSETID.
    ///
    /// Otherwise the backing filesystem clears them. File capabilities are cleared in both cases.
    @inline(__always)
    public static func keepSetID(_ keeps: Bool) {
        let current = clinux_identity()
        if current.keeps_set_id != keeps { change(toKeepSetID: keeps) }
    }

    /// Runs `body` without capabilities that `caller` lacks.
    ///
    /// Used for checks that the kernel in front does not make, or did not make on older kernels.
    public static func asPrivileged(as caller: Caller, _ body: () -> Int32) -> Int32 {
        var before: UInt64 = 0
        let result = clinux_thread_limit_capabilities(caller.capabilities, &before)
        if result < 0 { return result }
        defer { _ = clinux_thread_limit_capabilities(before, nil) }
        return body()
    }

    /// Runs `body`, which may allocate space, at first without the right to reserved space.
    ///
    /// Workers act without CAP_SYS_RESOURCE. If there is no space, `body` runs again with the
    /// rights of `caller`: that capability, or the group for which a filesystem reserves space.
    /// Returns the result of `body`, a count or a negative error number.
    ///
    /// Costs nothing while there is space. The filesystem decides about its reserve (ext4's
    /// reserved blocks, quota limits) by the thread's fsuid, which is the caller's.
    @inline(__always)
    public static func withReserve<Result: FixedWidthInteger>(of caller: Caller, _ body: () -> Result) -> Result {
        let result = body()
        return result == Result(truncatingIfNeeded: -ENOSPC) || result == Result(truncatingIfNeeded: -EDQUOT)
            ? again(as: caller, result, body) : result
    }

    @inline(never)
    private static func again<Result: FixedWidthInteger>(as caller: Caller, _ result: Result, _ body: () -> Result) -> Result {
        // Without this right the thread acts as the daemon's user for every caller.
        guard canChange, caller.pid > 0 else { return result }
        let hadGroups = clinux_identity().has_groups
        guard change(to: caller, groups: true) == 0 else { return result }
        let mayExceed = caller.has(capability: resources)
        if mayExceed { _ = clinux_thread_use_capability(resources, true) }
        defer {
            if mayExceed { _ = clinux_thread_use_capability(resources, false) }
            // Restores the groups, so that the next request does not inherit them.
            _ = change(to: caller, groups: hadGroups)
        }
        return body()
    }

    /// Runs `change`, which only the file's owner may make, with no more rights than `caller` has.
    ///
    /// The kernel in front has checked the owner that it knew, for an open file however long ago.
    /// So workers act without the rights to other users' files. If `change` is refused, it runs
    /// again with those that the caller has over the file. Returns the result of `change`, 0 or a
    /// negative error number.
    ///
    /// - Parameters:
    ///   - has: Returns the rights that the caller has over the file. Only called after a refusal.
    ///   - groups: Whether the caller's supplementary groups count, as for a change of the group.
    @inline(__always)
    public static func asOwner(
        _ caller: Caller, has: () -> FileRights, groups: Bool = false, _ change: () -> Int32
    ) -> Int32 {
        let result = change()
        guard result == -EPERM, canChange else { return result }
        return again(as: caller, result, has().intersection(.ownership), groups: groups, change)
    }

    /// As `asOwner`, for a change that write permission allows as well.
    @inline(never)
    public static func asWriter(_ caller: Caller, has: () -> FileRights, _ change: () -> Int32) -> Int32 {
        guard canChange else { return change() }
        // A group may have fewer rights than others. The next request drops the groups.
        let error = assume(caller, groups: true)
        if error != 0 { return 0 - error }
        var before: UInt64 = 0
        let dropped = clinux_thread_change_capabilities(FileRights.access.rawValue, 0, &before)
        if dropped < 0 { return dropped }
        defer { _ = clinux_thread_limit_capabilities(before, nil) }
        let result = change()
        return result == -EPERM || result == -EACCES ? again(as: caller, result, has(), groups: false, change) : result
    }

    @inline(never)
    private static func again(as caller: Caller, _ result: Int32, _ rights: FileRights, groups: Bool, _ change: () -> Int32) -> Int32 {
        guard caller.pid > 0 else { return result }
        // The next request drops the groups.
        if groups, !rights.contains(.ownership), assume(caller, groups: true) != 0 { return result }
        return rights.isEmpty ? (groups ? change() : result) : with(rights, change)
    }

    /// Runs `change`, if it is refused again with the rights of any file's owner. Returns its result.
    ///
    /// For a change that is the kernel's own, or that it has just checked.
    @inline(__always)
    public static func asAnyOwner(_ change: () -> Int32) -> Int32 {
        let result = change()
        return result == -EPERM && canChange ? with(.ownership, change) : result
    }

    @inline(never)
    private static func with(_ rights: FileRights, _ change: () -> Int32) -> Int32 {
        var before: UInt64 = 0
        let raised = clinux_thread_change_capabilities(0, rights.intersection([.ownership, .access]).rawValue, &before)
        if raised < 0 { return raised }
        defer { _ = clinux_thread_limit_capabilities(before, nil) }
        return change()
    }

    private static func change(toKeepSetID keeps: Bool) {
        // A daemon without the capability keeps no bits in any case. Dropping it cannot fail.
        _ = clinux_thread_use_capability(fsetid, keeps)
        var current = clinux_identity()
        current.keeps_set_id = keeps
        clinux_set_identity(current)
    }

    /// Capabilities that give rights to other users' files, one bit each.
    public struct FileRights: OptionSet, Sendable {
        public let rawValue: UInt64
        public init(rawValue: UInt64) { self.rawValue = rawValue }
        /// CAP_CHOWN and CAP_FOWNER.
        public static let ownership = FileRights(rawValue: 1 << 0 | 1 << 3)
        /// CAP_DAC_OVERRIDE, which gives write permission.
        public static let access = FileRights(rawValue: 1 << 1)
    }

    private static let fsetid: Int32 = 4
    private static let systemAdministration: Int32 = 21
    private static let scheduling: Int32 = 23
    private static let resources: Int32 = 24

    private static func change(to caller: Caller, groups: Bool) -> Int32 {
        let group = clinux_thread_setfsgid(caller.gid)
        var user = group == 0 ? clinux_thread_setfsuid(caller.uid) : group
        var current = clinux_identity()
        // Drops the groups of the previous caller.
        if user == 0, groups || current.has_groups {
            user = groups ? clinux_thread_take_groups(caller.pid) : clinux_thread_setgroups(nil, 0)
        }
        current.has_groups = groups || (user != 0 && current.has_groups)
        // After a refusal the identity is unknown. A value that no caller has makes the next call
        // try again.
        current.uid = user == 0 ? caller.uid : .max
        current.gid = user == 0 ? caller.gid : .max
        clinux_set_identity(current)
        return user < 0 ? Errno.number(of: user) : 0
    }

    /// Makes the calling thread act as the daemon itself.
    ///
    /// A thread inherits the identity of its creator, which may be a worker that acts for a caller.
    /// It also shares its creator's umask (clone(2), CLONE_FS), so it gets one of its own first.
    /// Without that no file could get the right mode, so the daemon ends. It checks this before it
    /// mounts (`canHaveOwnMask`).
    public static func resetOnThisThread() {
        guard canHaveOwnMask else { fatalError("the kernel gives a thread no umask of its own") }
        _ = clinux_thread_umask(0)
        // Threads that serve requests need no right to mount, to watch, or to change the scheduling
        // of other threads.
        for capability in [systemAdministration, scheduling] { _ = clinux_capability_drop(capability) }
        // Callers must not use reserved space without the right to it: see `withReserve`.
        if canChange { _ = clinux_thread_use_capability(resources, false) }
        // The kernel in front may know an earlier owner: see `asOwner`.
        var before: UInt64 = 0
        if canChange { _ = clinux_thread_change_capabilities(FileRights.ownership.rawValue, 0, &before) }
        // CAP_FSETID is inherited as well.
        _ = clinux_thread_use_capability(fsetid, true)
        if canChange { _ = clinux_thread_setgroups(nil, 0) }
        var identity = clinux_thread_identity(uid: geteuid(), gid: getegid(), umask: 0, keeps_set_id: true, has_groups: false)
        if canChange, clinux_thread_setfsgid(identity.gid) != 0 || clinux_thread_setfsuid(identity.uid) != 0 {
            // Unknown: a value that no caller has makes the first request set it.
            identity.uid = .max
            identity.gid = .max
        }
        clinux_set_identity(identity)
    }
}
