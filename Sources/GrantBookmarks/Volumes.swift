import Glibc
import GrantModel
import GrantSystem

/// The mounted filesystems and their identities. Each is identified once.
final class Volumes {
    private(set) var table: MountTable
    private let bootID = Boot.id
    private var identities: [dev_t: FilesystemIdentity] = [:]
    /// By type: each mounted filesystem of that type, with the mount that shows most of it.
    private var known: [String: [Volume]] = [:]

    private let reading: (Bool) -> Void

    /// `reading` is called before and after the mount table is read.
    init(reading: @escaping (Bool) -> Void = { _ in }) {
        self.reading = reading
        reading(true)
        table = (try? MountTable.currentWithRoot()) ?? MountTable(entries: [])
        reading(false)
    }

    /// Returns the identity of the filesystem that an open file is on.
    ///
    /// Returns nil if its mount is no longer known.
    func identity(of descriptor: borrowing FileDescriptor, _ status: FileStatus) -> FilesystemIdentity? {
        if let known = identities[status.st.st_dev] { return known }
        guard let entry = entry(of: status) else { return nil }
        let identity = identify(descriptor, entry, device: status.st.st_dev)
        identities[status.st.st_dev] = identity
        return identity
    }

    /// Returns the mount through which a file was reached.
    func entry(of status: FileStatus) -> MountEntry? {
        let find = { [self] in
            status.has_mount_id ? table.entry(id: status.mount_id) : table.entries.last { $0.statDevice == status.st.st_dev }

        }
        if let entry = find() { return entry }
        // It was mounted after the table was read.
        reading(true)
        let read = try? MountTable.currentWithRoot()
        reading(false)
        guard let fresh = read else { return nil }
        table = fresh
        return find()
    }

    /// Returns the mounted filesystems that may be the wanted one, each once.
    ///
    /// Subvolumes are not distinguished.
    func volumes(of wanted: FilesystemIdentity) -> [Volume] {
        volumes(type: wanted.type).filter { $0.identity.isSameVolume(as: wanted) }
    }

    /// Whether a filesystem with that identity is mounted. It calls none that may hang.
    func isMounted(_ wanted: FilesystemIdentity) -> Bool {
        if FilesystemTraits(type: wanted.type).isRemote {
            return table.entries.contains { $0.type == wanted.type && (wanted.source == nil || wanted.source == $0.source) }
        }
        return !volumes(of: wanted).isEmpty
    }

    private func volumes(type: String) -> [Volume] {
        if let known = known[type] { return known }
        var result: [Volume] = []
        if !FilesystemTraits(type: type).isRemote {
            var seen: Set<dev_t> = []
            // Mounts of a whole filesystem first: through a mount of a part of it, the rest has no
            // path.
            for entry in table.entries.filter({ $0.type == type }).sorted(by: { $0.root.count < $1.root.count })
            where !seen.contains(entry.statDevice) {
                guard let volume = open(entry) else { continue }
                seen.insert(entry.statDevice)
                result.append(volume)
            }
        }
        known[type] = result
        return result
    }

    private func open(_ entry: MountEntry) -> Volume? {
        guard let descriptor = entry.opened(), let status = try? descriptor.status(), let identity = identity(of: descriptor, status) else {
            return nil
        }
        return Volume(entry: entry, identity: identity)
    }

    private func identify(_ descriptor: borrowing FileDescriptor, _ entry: MountEntry, device: dev_t) -> FilesystemIdentity {
        let traits = FilesystemTraits(type: entry.type)
        var uuid = traits.isRemote ? [] : uuidFromKernel(descriptor, entry) ?? DiskLinks.uuid(device: entry.statDevice) ?? []
        if uuid.allSatisfy({ $0 == 0 }) { uuid = [] }
        var fsid = traits.hasLastingID ? try? descriptor.filesystemID() : nil
        if fsid == 0 { fsid = nil }
        let source = uuid.isEmpty && fsid == nil && !traits.diesWithBoot ? entry.source : nil
        // After the next boot the device's name may mean another device.
        let isNamedByDevice = source?.starts(with: "/dev/".utf8) ?? false
        return FilesystemIdentity(
            uuid: uuid, type: entry.type, bootID: traits.diesWithBoot || isNamedByDevice ? bootID : nil, fsid: fsid, source: source)
    }
}

extension Volumes {
    /// Requests the UUID from the kernel, through the directory or the root of its mount.
    ///
    /// The root is used if this user may not read the directory.
    private func uuidFromKernel(_ descriptor: borrowing FileDescriptor, _ entry: MountEntry) -> [UInt8]? {
        if let readable = try? descriptor.reopened(O_RDONLY | O_DIRECTORY), let uuid = try? readable.filesystemUUID() { return uuid }
        guard let root = entry.opened() else { return nil }
        return try? root.filesystemUUID()
    }
}

/// A mounted filesystem.
///
/// It is opened for each use: an open descriptor would make `umount` fail.
struct Volume {
    let entry: MountEntry
    let identity: FilesystemIdentity
}

extension MountEntry {
    /// Opens the root of the mount, without O_PATH.
    ///
    /// Returns nil if it cannot be reached, is hidden by another mount, or is not a directory.
    func opened() -> FileDescriptor? {
        guard let descriptor = try? FileDescriptor.open(mountpoint, O_RDONLY | O_NONBLOCK | O_NOFOLLOW),
            let status = try? descriptor.status(), !status.has_mount_id || status.mount_id == id, status.st.st_mode & S_IFMT == S_IFDIR
        else { return nil }
        return descriptor
    }
}

extension FilesystemIdentity {
    /// Whether it is the same filesystem, in any subvolume.
    func isSameVolume(as other: FilesystemIdentity) -> Bool {
        if bootID != other.bootID { return false }
        if !uuid.isEmpty && !other.uuid.isEmpty { return uuid == other.uuid }
        // A process that could not read the UUID has identified one of them. The fsid, if there is
        // one, is derived from it.
        if let fsid, let otherID = other.fsid { return type == other.type && fsid == otherID }
        return uuid.isEmpty && other.uuid.isEmpty && type == other.type && source == other.source
    }

    /// Whether it is the same filesystem and subvolume.
    func isSame(as other: FilesystemIdentity) -> Bool {
        isSameVolume(as: other) && (fsid == nil || other.fsid == nil || fsid == other.fsid)
    }
}
