import Glibc
import GrantModel
import GrantSystem

/// The mounted filesystems of now and their identities, each looked at once.
final class Volumes {
    private(set) var table: MountTable
    private let bootID = Boot.id
    private var identities: [dev_t: FilesystemIdentity] = [:]
    /// By type: for each mounted filesystem of the type, its widest mount.
    private var known: [String: [Volume]] = [:]

    private let reading: (Bool) -> Void

    /// `reading` is told before and after the mount table is read.
    init(reading: @escaping (Bool) -> Void = { _ in }) {
        self.reading = reading
        reading(true)
        table = (try? MountTable.currentWithRoot()) ?? MountTable(entries: [])
        reading(false)
    }

    /// The filesystem that the descriptor's file lies on. nil when its mount cannot be told any more.
    func identity(of descriptor: borrowing FileDescriptor, _ status: FileStatus) -> FilesystemIdentity? {
        if let known = identities[status.st.st_dev] { return known }
        guard let entry = entry(of: status) else { return nil }
        let identity = look(at: descriptor, entry, device: status.st.st_dev)
        identities[status.st.st_dev] = identity
        return identity
    }

    /// The mount a file was reached through.
    func entry(of status: FileStatus) -> MountEntry? {
        let find = { [self] in status.has_mount_id ? table.entry(id: status.mount_id) : table.entries.last { $0.device == status.st.st_dev }
        }
        if let entry = find() { return entry }
        // Mounted since the table was read.
        reading(true)
        let read = try? MountTable.currentWithRoot()
        reading(false)
        guard let fresh = read else { return nil }
        table = fresh
        return find()
    }

    /// The mounted filesystems that may be the one of the identity, apart from the subvolume, each once.
    func volumes(of wanted: FilesystemIdentity) -> [Volume] {
        volumes(type: wanted.type).filter { $0.identity.isSameVolume(as: wanted) }
    }

    /// Whether a filesystem of that identity is mounted, without asking one that may not answer.
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
            // The widest view of a filesystem first: through a mount of a part of it, the rest has no path.
            for entry in table.entries.filter({ $0.type == type }).sorted(by: { $0.root.count < $1.root.count })
            where !seen.contains(entry.device) {
                guard let volume = open(entry) else { continue }
                seen.insert(entry.device)
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

    private func look(at descriptor: borrowing FileDescriptor, _ entry: MountEntry, device: dev_t) -> FilesystemIdentity {
        let traits = FilesystemTraits(type: entry.type)
        var uuid = traits.isRemote ? [] : askedUUID(descriptor, entry) ?? DiskLinks.uuid(device: entry.device) ?? []
        if uuid.allSatisfy({ $0 == 0 }) { uuid = [] }
        var fsid = traits.hasLastingID ? try? descriptor.filesystemID() : nil
        if fsid == 0 { fsid = nil }
        let source = uuid.isEmpty && fsid == nil && !traits.diesWithBoot ? entry.source : nil
        // The name of a device stands for another one after the next boot.
        let isNamedByDevice = source?.starts(with: "/dev/".utf8) ?? false
        return FilesystemIdentity(
            uuid: uuid, type: entry.type, bootID: traits.diesWithBoot || isNamedByDevice ? bootID : nil, fsid: fsid, source: source)
    }
}

extension Volumes {
    /// The UUID by the kernel's word, through the directory or, when this user may not read it, the root of its mount.
    private func askedUUID(_ descriptor: borrowing FileDescriptor, _ entry: MountEntry) -> [UInt8]? {
        if let readable = try? descriptor.reopened(O_RDONLY | O_DIRECTORY), let uuid = try? readable.filesystemUUID() { return uuid }
        guard let root = entry.opened() else { return nil }
        return try? root.filesystemUUID()
    }
}

/// A mounted filesystem. It is opened for each use: a descriptor that is kept would make `umount` fail.
struct Volume {
    let entry: MountEntry
    let identity: FilesystemIdentity
}

extension MountEntry {
    /// As stat(2) has it (on btrfs, files have another one for each subvolume).
    var device: dev_t { makedev(major, minor) }

    /// The root of the mount, not O_PATH; nil when it cannot be reached, is covered by another mount, or is no directory.
    func opened() -> FileDescriptor? {
        guard let descriptor = try? FileDescriptor.open(mountpoint, O_RDONLY | O_NONBLOCK | O_NOFOLLOW),
            let status = try? descriptor.status(), !status.has_mount_id || status.mount_id == id, status.st.st_mode & S_IFMT == S_IFDIR
        else { return nil }
        return descriptor
    }

    private func makedev(_ major: UInt32, _ minor: UInt32) -> dev_t {
        let high: UInt64 = (UInt64(truncatingIfNeeded: major) & ~0xFFF) << 32 | (UInt64(truncatingIfNeeded: minor) & ~0xFF) << 12
        let low: UInt64 = (UInt64(truncatingIfNeeded: major) & 0xFFF) << 8 | UInt64(truncatingIfNeeded: minor) & 0xFF
        return dev_t(truncatingIfNeeded: high | low)
    }
}

extension FilesystemIdentity {
    /// The same filesystem, in whichever subvolume.
    func isSameVolume(as other: FilesystemIdentity) -> Bool {
        if bootID != other.bootID { return false }
        if !uuid.isEmpty && !other.uuid.isEmpty { return uuid == other.uuid }
        // One of them was looked at by a process that may not ask for the UUID; where there is an fsid, it comes from it.
        if let fsid, let otherID = other.fsid { return type == other.type && fsid == otherID }
        return uuid.isEmpty && other.uuid.isEmpty && type == other.type && source == other.source
    }

    /// The same filesystem and subvolume.
    func isSame(as other: FilesystemIdentity) -> Bool {
        isSameVolume(as: other) && (fsid == nil || other.fsid == nil || fsid == other.fsid)
    }
}
