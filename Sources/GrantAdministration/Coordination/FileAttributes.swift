import Glibc
import GrantSystem

/// The parts of a file's copy beside the data.
package enum FileAttributes {
    package struct Extended {
        let name: String
        let value: [UInt8]
    }

    /// Reads all extended attributes that this user may see, ACLs included.
    package static func extended(of file: borrowing FileDescriptor) throws(Errno) -> [Extended] {
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

    /// Whether every owner of a file can set this attribute.
    static func isOwn(_ name: String) -> Bool { name.hasPrefix("user.") || name.hasPrefix("system.posix_acl_") }

    /// Sets owner, extended attributes, mode and times, in this order, because each clears or
    /// changes some of those after it. A user without the right to change owners keeps the copy,
    /// without set-id bits. Attributes that only root sets are omitted. Returns the attributes that
    /// the copy lacks.
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

    /// Gives a new file, which is to replace another one, what programs expect to be kept over a save: owner and group where permitted,
    /// extended attributes, ACL and mode.
    ///
    /// A group that cannot be kept would get the rights of the old one, so its rights are then
    /// limited to those of others. Set-id bits and capabilities are for the old contents: as with a
    /// write(2), the new file has none, except for set-gid without execution.
    package static func carry(
        _ status: FileStatus, _ attributes: [Extended], over replacement: borrowing FileDescriptor
    ) throws(Errno) {
        _ = try give(replacement, to: status)
        let hasGroup = try replacement.status().st.st_gid == status.st.st_gid
        let kept = attributes.filter { !["security.capability", "security.ima", "security.evm"].contains($0.name) }
        try removeInherited(kept, from: replacement)
        for attribute in kept {
            let isAccess = attribute.name == "system.posix_acl_access" && !hasGroup
            _ = try set(isAccess ? Extended(name: attribute.name, value: limited(attribute.value)) : attribute, on: replacement)
        }
        var mode = status.st.st_mode & 0o1777
        if hasGroup, status.st.st_mode & 0o2010 == 0o2000 { mode |= 0o2000 }
        let hasList = kept.contains { $0.name == "system.posix_acl_access" }
        // With an ACL these bits are its mask, and the owning group was limited in the list.
        if !hasGroup, !hasList { mode &= ~0o070 | (mode & 0o007) << 3 }
        try replacement.setMode(mode)
    }

    /// Returns the ACL (acl(5)) with the owning group's rights limited to those of others. The
    /// format is that of posix_acl_xattr.h.
    static func limited(_ list: [UInt8]) -> [UInt8] {
        let (header, entry, owningGroup, everyone) = (4, 8, UInt8(0x04), UInt8(0x20))
        var result = list
        let places = stride(from: header, to: list.count - entry + 1, by: entry)
        guard let other = places.first(where: { list[$0] == everyone }) else { return list }
        for place in places where list[place] == owningGroup { result[place + 2] &= list[other + 2] }
        return result
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
            // Without these the copy would differ. Attributes of the system and its labels cannot
            // be set by every user.
            if isOwn(attribute.name) || ![EPERM, EOPNOTSUPP, EINVAL].contains(error.rawValue) { throw error }
            return false
        }
    }
}
