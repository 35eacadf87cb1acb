import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem

// Set-user-id and set-group-id bits (docs/decisions/requests.md).
extension ViewFS {
    /// Decides for chown(2), fallocate(2) and copy_file_range(2) whether set-id bits are kept.
    ///
    /// These requests do not say whether the caller has CAP_FSETID. So that is determined for files
    /// with such bits.
    ///
    /// A set-gid bit without execution for the group also stays for members of the group
    /// (fs/attr.c, setattr_should_drop_sgid). The worker has none of the caller's supplementary
    /// groups.
    ///
    /// `byACL`: for a change of an ACL, where members keep the bit in any case (fs/posix_acl.c,
    /// posix_acl_update_mode).
    func settleSetID(of descriptor: Int32, for caller: Caller, byACL: Bool = false) {
        var status = FileStatus()
        let result = clinux_statx(descriptor, nil, &status)
        let bits = status.st.st_mode & (S_ISUID | S_ISGID | S_IXGRP)
        guard result < 0 || bits & (S_ISUID | S_ISGID) != 0 else { return }
        let isPlainSetGID = bits & (S_ISGID | S_IXGRP) == S_ISGID
        let isMembers =
            (byACL || isPlainSetGID) && result == 0
            && (clinux_other_is_in_group(caller.pid, status.st.st_gid) || caller.maySetID(of: status))
        // Of two bits a member loses one. Only the backing filesystem can do that atomically, with
        // the member's groups.
        let losesOne = isMembers && !byACL && bits & S_ISUID != 0
        if losesOne { _ = Identity.assume(caller.asMember(of: status), groups: true) }
        Identity.keepSetID((isMembers && !losesOne) || caller.has(capability: fsetid))
    }

    /// Records that the mount has set-gid bits without group execution.
    @inline(__always)
    func recordMode(_ mode: mode_t) {
        if mode & (S_ISGID | S_IXGRP) == S_ISGID { hasPlainSetGID.store(true, ordering: .relaxed) }
    }

    /// The mode with which `caller` may create a file in `directory`.
    ///
    /// It lacks the set-id bits that the caller could not set on a file with the new file's owner
    /// and group.
    @inline(__always)
    func creationMode(_ mode: mode_t, in directory: Int32, for caller: Caller) -> mode_t {
        mode & setIDBits == 0 ? mode : limitedMode(mode, in: directory, for: caller)
    }

    @inline(never)
    private func limitedMode(_ mode: mode_t, in directory: Int32, for caller: Caller) -> mode_t {
        var status = FileStatus()
        guard clinux_statx(directory, nil, &status) == 0 else { return mode & ~setIDBits }
        let inheritsGroup = status.st.st_mode & S_ISGID != 0
        if !inheritsGroup { status.st.st_gid = Identity.isRoots ? caller.gid : getegid() }
        // As natively if the caller becomes the owner: without group execution the bit runs nothing
        // (fs/inode.c, mode_strip_sgid).
        if Identity.isRoots, mode & (S_ISGID | S_IXGRP) == S_ISGID { return mode }
        InjectedFault.stop(at: "creation-mode")
        let limited = limited(mode, status, for: caller)
        // The directory may get another group meanwhile. So the filesystem decides, by the caller's
        // groups (fs/inode.c, mode_strip_sgid).
        guard Identity.isRoots, inheritsGroup, limited & S_ISGID != 0, !caller.has(capability: fsetid) else { return limited }
        let isMember = caller.gid == status.st.st_gid || clinux_other_is_in_group(caller.pid, status.st.st_gid)
        Identity.keepSetID(false)
        let error = Identity.assume(isMember ? caller : caller.asMember(of: status), groups: true)
        return error == 0 ? limited : limited & ~S_ISGID
    }

    /// `mode` without the set-id bits that `caller` cannot set on a file with the group of `status`.
    ///
    /// The file is one that this daemon creates or may change. `status` has the owner of the file,
    /// or of the directory for a new file.
    private func limited(_ mode: mode_t, _ status: FileStatus, for caller: Caller) -> mode_t {
        let group = status.st.st_gid
        let isOwners = Identity.isRoots || caller.uid == geteuid()
        let isMembers = caller.gid == group || clinux_other_is_in_group(caller.pid, group)
        if isOwners && isMembers || caller.maySetID(of: status) { return mode }
        return mode & ~((isOwners ? 0 : S_ISUID) | (isMembers ? 0 : S_ISGID))
    }

    /// Changes a file's mode. Returns 0 or a negative error number.
    @inline(__always)
    func changeMode(of descriptor: Int32, to mode: mode_t, as caller: Caller) -> Int32 {
        mode & setIDBits == 0
            ? changePlainMode(of: descriptor, to: mode, as: caller) : changeMode(of: descriptor, toSetID: mode, as: caller)
    }

    /// Sets set-id bits with the caller's own rights, without those it may not set.
    ///
    /// The kernel in front has checked the owner and group that it had cached. The file may have
    /// been given away on the host since.
    @inline(never)
    private func changeMode(of descriptor: Int32, toSetID mode: mode_t, as caller: Caller) -> Int32 {
        var status = FileStatus()
        let found = clinux_statx(descriptor, nil, &status)
        if found < 0 { return found }
        guard Identity.isRoots else { return clinux_chmod_descriptor(descriptor, limited(mode, status, for: caller)) }
        // A capability in another user namespace counts for files with this owner and group only. So
        // the thread acts as these instead, and fails if the file has got others.
        let owner = status.st.st_uid
        let isOwners = caller.uid == owner || caller.has(capability: fowner, overFileOf: owner, status.st.st_gid)
        let identity = isOwners ? Caller(uid: owner, gid: caller.gid, pid: caller.pid, umask: caller.umask) : caller
        let isMembers = caller.gid == status.st.st_gid || caller.maySetID(of: status)
        let error = Identity.assume(isMembers ? identity.asMember(of: status) : identity, groups: true)
        if error != 0 { return 0 - error }
        let result = Identity.asPrivileged(as: caller) { clinux_chmod_descriptor(descriptor, mode) }
        return result == -EPERM ? changePlainMode(of: descriptor, to: mode & ~setIDBits, as: caller) : result
    }

    @inline(__always)
    private func changePlainMode(of descriptor: Int32, to mode: mode_t, as caller: Caller) -> Int32 {
        Identity.asOwner(caller, has: { rights(of: caller, over: descriptor) }) { clinux_chmod_descriptor(descriptor, mode) }
    }
}

extension Caller {
    /// Whether it may set and keep set-id bits of a file with this owner and group, of which it is no
    /// member.
    fileprivate func maySetID(of status: FileStatus) -> Bool {
        has(capability: fsetid, overFileOf: status.st.st_uid, status.st.st_gid)
    }

    fileprivate func asMember(of status: FileStatus) -> Caller { Caller(uid: uid, gid: status.st.st_gid, pid: pid, umask: umask) }
}

private let setIDBits: mode_t = S_ISUID | S_ISGID

/// CAP_FOWNER and CAP_FSETID of <linux/capability.h>.
private let fowner: Int32 = 3
private let fsetid: Int32 = 4
