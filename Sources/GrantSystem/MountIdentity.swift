import CGrantSystem
import Glibc

/// One mount, told from whatever else stands at its path by now.
///
/// Directories above a mountpoint may be renamed and replaced by links by whoever owns them, so nothing is unmounted by its path: the
/// mount is looked for by its numbers, opened without a link on the way, and compared.
public struct MountIdentity: Sendable {
    public let device: DeviceNumber
    /// As mountinfo has it; used again once the mount is gone. 0 where the kernel does not say (before Linux 5.8).
    public let id: UInt64
    /// That no other mount ever has; nil before Linux 6.8, and where a FUSE filesystem is for another user alone.
    public let number: UInt64?

    /// The mount that the descriptor was opened through. Its filesystem is not asked.
    public init(of descriptor: borrowing FileDescriptor) throws(Errno) { self = try MountIdentity.of(descriptor.number, "") }

    /// The mount that `path` leads into, links followed: for / and for /proc, whose links lead nowhere else. No filesystem is asked.
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

    /// Where it is mounted now in this process's namespace; nil when it is not.
    public func entry(in table: MountTable) -> MountEntry? {
        if let number, MountNumber.isThere(number) == false { return nil }
        let entry = table.entry(id: id)
        return entry?.device == device ? entry : nil
    }

    /// Detaches it, wherever it is mounted by now; what holds something of it keeps that. Nothing happens when it is not mounted in this process's
    /// namespace. EBUSY when something else is mounted over it, ELOOP when its path leads through a link; EPERM for who is not root.
    public func detach() throws(Errno) {
        // A directory above may be renamed between the look at the table and the opening: then it is found at its new place.
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

    /// Unmounts it when nobody uses it. `directory`: the one that it is mounted in, by `name`. EBUSY when it is in use, ENOENT when something
    /// else is there.
    public func unmount(in directory: borrowing FileDescriptor, name: [UInt8]) throws(Errno) {
        guard try isMounted(in: directory, name) else { throw Errno(ENOENT) }
        // No descriptor of the mount is open any more: it would make it busy.
        _ = try Errno.check(withCString(name) { clinux_unmount_in(directory.number, $0) })
    }

    private func isMounted(in directory: borrowing FileDescriptor, _ name: [UInt8]) throws(Errno) -> Bool {
        let there = try FileDescriptor.openAt(directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        return try MountIdentity(of: there).isSame(as: self)
    }

    /// Changes its flags. `root`: its root.
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
    /// An O_PATH descriptor of the directory at an absolute path on which nothing is a symbolic link; what is mounted there is entered, and not
    /// asked. ELOOP when there is one.
    public static func openWithoutLinks(_ path: [UInt8]) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(withCString(path) { clinux_open_directory_without_links($0) }))
    }
}
