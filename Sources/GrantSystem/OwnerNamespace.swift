import CGrantSystem
import Glibc

/// A user namespace without processes, by which directories show other owners.
package final class OwnerNamespace: Sendable {
    private let namespace: FileDescriptor
    /// What statx(2) has for owners and groups without a number.
    package let unmapped: (user: UInt32, group: UInt32)

    /// - Parameters: The contents of its uid_map and gid_map.
    /// - Throws: EPERM for a user without rights over the machine's users, EOPNOTSUPP before Linux 6.2, which tells the numbers of the
    ///   host for the users of an ACL.
    package init(users: String, groups: String) throws(Errno) {
        guard KernelRelease.current.map({ $0 >= (6, 2) }) ?? false else { throw Errno(EOPNOTSUPP) }
        unmapped = (Self.overflow("uid"), Self.overflow("gid"))
        namespace = FileDescriptor(owning: try Errno.check(clinux_owners_namespace(users, groups)))
    }

    /// What EOPNOTSUPP of `init` says.
    package static let needed = "Linux 6.2 or later is needed"

    private static func overflow(_ kind: String) -> UInt32 {
        let text = (try? File.contents(of: "/proc/sys/kernel/overflow\(kind)".utf8)) ?? []
        return UInt32(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self), radix: 10) ?? 65534
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
/// Their paths are those on the mount that was copied, which cannot be unmounted meanwhile.
package final class MountCopy: Sendable {
    private let number: UInt64
    private let original: FileDescriptor

    /// - Parameters:
    ///   - directory: From `OwnerNamespace.open`.
    ///   - original: The same directory on the mount that was copied.
    package init(of directory: borrowing FileDescriptor, _ original: consuming FileDescriptor) {
        number = clinux_owners_number(directory.number)
        self.original = original
    }

    /// For a copy that another process has made.
    package init(of directory: borrowing FileDescriptor, _ original: consuming MountTable.FoundDirectory) throws(Errno) {
        // The root of the machine has no path before others.
        let prefix = original.mountpoint == [0x2F] ? [] : original.mountpoint
        self.original = original.directory
        _ = try Errno.check(withCString(prefix) { clinux_know_owners(directory.number, $0, prefix.count) })
        number = clinux_owners_number(directory.number)
    }

    deinit { clinux_forget_owners(number) }
}
