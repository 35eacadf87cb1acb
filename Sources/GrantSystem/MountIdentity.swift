import CGrantSystem
import Glibc

/// Identifies one mount, even if another file lies at its path by now.
///
/// The owner of a directory above a mountpoint may rename it or replace it by a link, so nothing is
/// unmounted by path. The mount is looked up by its IDs, opened without following links, and
/// compared.
public struct MountIdentity: Sendable {
    public let device: DeviceNumber
    /// The ID of mountinfo, which is reused once the mount is gone.
    ///
    /// It is 0 if the kernel does not tell it (before Linux 5.8).
    public let id: UInt64
    /// The unique mount ID, never reused.
    ///
    /// nil before Linux 6.8, and if a FUSE filesystem belongs to another user.
    public let number: UInt64?

    /// The mount through which the descriptor was opened. Never blocks: calls no filesystem.
    public init(of descriptor: borrowing FileDescriptor) throws(Errno) { self = try MountIdentity.of(descriptor.number, "") }

    /// The mount behind `path`, links followed. Never blocks.
    ///
    /// Only for / and /proc, whose links are trusted.
    public static func withoutAsking(_ path: String) throws(Errno) -> MountIdentity { try of(AT_FDCWD, path) }

    private static func of(_ directory: Int32, _ path: String) throws(Errno) -> MountIdentity {
        var place = clinux_mount_place()
        _ = try Errno.check(clinux_mount_place_of(directory, path, &place))
        return MountIdentity(
            device: DeviceNumber(major: place.major, minor: place.minor), id: place.id, number: place.number == 0 ? nil : place.number)
    }

    public init(device: DeviceNumber, id: UInt64, number: UInt64?) {
        self.device = device
        self.id = id
        self.number = number
    }

    public func isSame(as other: MountIdentity) -> Bool {
        device == other.device && id == other.id && (number == nil || other.number == nil || number == other.number)
    }

    /// Its entry in the mount table of this process's namespace. Returns nil if it is not mounted
    /// there.
    public func entry(in table: MountTable) -> MountEntry? {
        if let number, MountNumber.isThere(number) == false { return nil }
        let entry = table.entry(id: id)
        return entry?.device == device ? entry : nil
    }

    /// Detaches it at its present mountpoint. Holders of its files keep them.
    ///
    /// Does nothing if it is not mounted in this process's namespace.
    ///
    /// - Throws: EBUSY if another mount covers it, ELOOP if its path leads through a link, EPERM
    ///   without root.
    public func detach() throws(Errno) {
        // A directory above may be renamed between the read of the table and the opening: then it
        // is found at its new place.
        for attempt in 1... {
            guard let entry = entry(in: try MountTable.current()) else { return }
            do throws(Errno) {
                let root = try FileDescriptor.openWithoutLinks(entry.mountpoint)
                guard try MountIdentity(of: root).isSame(as: self) else { throw Errno(EBUSY) }
                _ = try Errno.check(clinux_unmount_descriptor(root.number))
                return
            } catch {
                if attempt == 8 { throw error }
                usleep(1_000)
            }
        }
    }

    /// Unmounts it from `name` in `directory` unless it is in use.
    ///
    /// - Throws: EBUSY if it is in use, ENOENT if the name has another mount or none.
    public func unmount(in directory: borrowing FileDescriptor, name: [UInt8]) throws(Errno) {
        guard try isMounted(in: directory, name) else { throw Errno(ENOENT) }
        // No descriptor of the mount is open any more: it would make it busy.
        _ = try Errno.check(withCString(name) { clinux_unmount_in(directory.number, $0) })
    }

    private func isMounted(in directory: borrowing FileDescriptor, _ name: [UInt8]) throws(Errno) -> Bool {
        let there = try FileDescriptor.openAt(directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        return try MountIdentity(of: there).isSame(as: self)
    }

    /// Changes the flags of the mount whose root this is.
    public static func remount(
        _ root: borrowing FileDescriptor, readOnly: Bool, setID: Bool, devices: Bool, noExecute: Bool, noAccessTime: Bool,
        noDirectoryAccessTime: Bool
    ) throws(Errno) {
        _ = try Errno.check(clinux_remount(root.number, readOnly, setID, devices, noExecute, noAccessTime, noDirectoryAccessTime))
    }
}

extension MountEntry {
    public var device: DeviceNumber { DeviceNumber(major: major, minor: minor) }
}

extension FileDescriptor {
    /// Opens the directory at an absolute path, O_PATH, following no symbolic link.
    ///
    /// Enters the mount on it without a call to its filesystem.
    ///
    /// - Throws: ELOOP if the path contains a link.
    public static func openWithoutLinks(_ path: [UInt8]) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(withCString(path) { clinux_open_directory_without_links($0) }))
    }
}
