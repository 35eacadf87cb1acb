import Glibc
import GrantSystem

/// What a copy of a file has besides data.
enum FileAttributes {
    struct Extended {
        let name: String
        let value: [UInt8]
    }

    /// Of extended attributes all that this user may see, ACLs among them.
    static func extended(of file: borrowing FileDescriptor) throws(Errno) -> [Extended] {
        var result: [Extended] = []
        for name in try file.attributeNames() {
            do throws(Errno) {
                // XATTR_SIZE_MAX: no attribute is longer.
                result.append(Extended(name: name, value: try file.attribute(name, limit: 65_536)))
            } catch {
                // Removed since it was listed, or not for this user's eyes.
                if ![ENODATA, EACCES, EPERM].contains(error.rawValue) { throw error }
            }
        }
        return result
    }

    /// Makes the copy of a file what the file is: owner, extended attributes, mode, times, in this order, because each clears or changes something of those
    /// behind it. A user who may not give files away keeps the copy, without set-id bits. What only root may set, other users do without. What the copy does without is
    /// returned.
    @discardableResult
    static func apply(_ status: FileStatus, _ attributes: [Extended], to copy: borrowing FileDescriptor) throws(Errno) -> CopyLosses.Kinds {
        let isKept = try give(copy, to: status)
        var lost: CopyLosses.Kinds = isKept ? [] : .owner
        if !isKept, status.st.st_mode & S_IFMT == S_IFREG, status.st.st_mode & 0o6000 != 0 { lost.insert(.setID) }
        // A label the system gives anew.
        for attribute in attributes where try !set(attribute, on: copy) && attribute.name != "security.selinux" { lost.insert(.attributes) }
        if status.st.st_mode & S_IFMT != S_IFLNK { try copy.setMode(isKept ? status.st.st_mode : status.st.st_mode & ~0o6000) }
        try copy.setTimes(access: status.st.st_atim, modification: status.st.st_mtim)
        return lost
    }

    /// Whether it now has the owner and the group.
    private static func give(_ copy: borrowing FileDescriptor, to status: FileStatus) throws(Errno) -> Bool {
        do throws(Errno) {
            try copy.setOwner(status.st.st_uid, status.st.st_gid)
            return true
        } catch {
            if error != Errno(EPERM) { throw error }
            // Of a group that this user belongs to, at least.
            try? copy.setOwner(uid_t.max, status.st.st_gid)
            return false
        }
    }

    /// Whether it has the attribute now.
    private static func set(_ attribute: Extended, on copy: borrowing FileDescriptor) throws(Errno) -> Bool {
        do throws(Errno) {
            try copy.setAttribute(attribute.name, to: attribute.value)
            return true
        } catch {
            // A copy without them would be another file; what belongs to the system or to its labels is not everybody's to set.
            let isOwn = attribute.name.hasPrefix("user.") || attribute.name.hasPrefix("system.posix_acl_")
            if isOwn || ![EPERM, EOPNOTSUPP, EINVAL].contains(error.rawValue) { throw error }
            return false
        }
    }
}
