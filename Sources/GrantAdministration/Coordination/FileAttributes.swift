import Glibc
import GrantSystem

/// The parts of a file's copy beside the data.
enum FileAttributes {
    struct Extended {
        let name: String
        let value: [UInt8]
    }

    /// Reads all extended attributes that this user may see, ACLs included.
    static func extended(of file: borrowing FileDescriptor) throws(Errno) -> [Extended] {
        var result: [Extended] = []
        for name in try file.attributeNames() {
            do throws(Errno) {
                // XATTR_SIZE_MAX: no attribute is longer.
                result.append(Extended(name: name, value: try file.attribute(name, limit: 65_536)))
            } catch {
                // It was removed since it was listed, or this user may not read it.
                if ![ENODATA, EACCES, EPERM].contains(error.rawValue) { throw error }
            }
        }
        return result
    }

    /// Whether everyone who owns a file can set this attribute.
    static func isOwn(_ name: String) -> Bool { name.hasPrefix("user.") || name.hasPrefix("system.posix_acl_") }

    /// Sets owner, extended attributes, mode and times, in this order, because each clears or changes some of those after it. A user
    /// without the right to change owners keeps the copy, without set-id bits; attributes that only root sets are left out. Returns
    /// what the copy lacks.
    @discardableResult
    static func apply(_ status: FileStatus, _ attributes: [Extended], to copy: borrowing FileDescriptor) throws(Errno) -> CopyLosses.Kinds {
        let isKept = try give(copy, to: status)
        var lost: CopyLosses.Kinds = isKept ? [] : .owner
        if !isKept, status.st.st_mode & S_IFMT == S_IFREG, status.st.st_mode & 0o6000 != 0 { lost.insert(.setID) }
        if status.st.st_mode & S_IFMT != S_IFLNK { try removeInherited(attributes, from: copy) }
        // The system assigns a new label.
        for attribute in attributes where try !set(attribute, on: copy) && attribute.name != "security.selinux" { lost.insert(.attributes) }
        if status.st.st_mode & S_IFMT != S_IFLNK { try copy.setMode(isKept ? status.st.st_mode : status.st.st_mode & ~0o6000) }
        try copy.setTimes(access: status.st.st_atim, modification: status.st.st_mtim)
        return lost
    }

    /// Removes the access lists that the copy has from the directory in which it was made, and the original has not.
    private static func removeInherited(_ attributes: [Extended], from copy: borrowing FileDescriptor) throws(Errno) {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] where !attributes.contains(where: { $0.name == name }) {
            do throws(Errno) {
                try copy.removeAttribute(name)
            } catch {
                if ![ENODATA, EOPNOTSUPP].contains(error.rawValue) { throw error }
            }
        }
    }

    /// Returns whether the copy now has the owner and the group.
    private static func give(_ copy: borrowing FileDescriptor, to status: FileStatus) throws(Errno) -> Bool {
        do throws(Errno) {
            try copy.setOwner(status.st.st_uid, status.st.st_gid)
            return true
        } catch {
            if error != Errno(EPERM) { throw error }
            // At least the group can be set, if this user belongs to it.
            try? copy.setOwner(uid_t.max, status.st.st_gid)
            return false
        }
    }

    /// Returns whether the copy now has the attribute.
    private static func set(_ attribute: Extended, on copy: borrowing FileDescriptor) throws(Errno) -> Bool {
        do throws(Errno) {
            try copy.setAttribute(attribute.name, to: attribute.value)
            return true
        } catch {
            // Without these the copy would differ; attributes of the system and its labels cannot be set by everybody.
            if isOwn(attribute.name) || ![EPERM, EOPNOTSUPP, EINVAL].contains(error.rawValue) { throw error }
            return false
        }
    }
}
