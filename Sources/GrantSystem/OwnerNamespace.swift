import CGrantSystem

/// A user namespace without processes, by which directories show other owners.
package final class OwnerNamespace: Sendable {
    private let namespace: FileDescriptor

    /// - Parameters: The contents of its uid_map and gid_map.
    /// - Throws: EPERM for a user without rights over the machine's users.
    package init(users: String, groups: String) throws(Errno) {
        namespace = FileDescriptor(owning: try Errno.check(clinux_owners_namespace(users, groups)))
    }

    /// Opens a directory again, on a copy of its mount that has no place and shows other owners. Mounts below are not copied.
    ///
    /// - Throws: EINVAL if the filesystem cannot do that, EAGAIN while the directory is being renamed.
    package func open(_ directory: borrowing FileDescriptor) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(clinux_open_with_owners(directory.number, namespace.number)))
    }
}

/// The copy of a mount that shows other owners, while descriptors on it are in use.
///
/// Their paths are those on the mount that was copied.
package final class MountCopy: Sendable {
    private let number: UInt64

    /// - Parameter directory: From `OwnerNamespace.open`.
    package init(of directory: borrowing FileDescriptor) { number = clinux_owners_number(directory.number) }

    /// For a copy that another process has made. `prefix`: the path of the mount that was copied.
    package init(of directory: borrowing FileDescriptor, prefix: [UInt8]) throws(Errno) {
        // The root of the machine has no path before others.
        let length = prefix == [0x2F] ? 0 : prefix.count
        _ = try Errno.check(withCString(prefix) { clinux_know_owners(directory.number, $0, length) })
        number = clinux_owners_number(directory.number)
    }

    deinit { clinux_forget_owners(number) }
}
