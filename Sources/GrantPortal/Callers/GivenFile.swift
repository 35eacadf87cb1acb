import Glibc
import GrantAdministration
import GrantSystem

/// A file or directory of the host that a caller has proved it can open.
struct GivenFile: Sendable {
    /// O_PATH, opened by this process, of the very file that the caller's descriptor is of.
    let host: GivenDescriptor
    let status: FileStatus
    /// On the host, without links.
    let path: [UInt8]
    /// Whether the caller's descriptor allows writing. If not, it cannot give write access to others.
    let isWritable: Bool
    /// The document, a directory, in which the caller has it, or nil when it has the file by
    /// itself.
    var source: DocumentSource?

    var isDirectory: Bool { status.st.st_mode & S_IFMT == S_IFDIR }
}

/// A document, and in whose part of the mount it is.
struct DocumentSource: Sendable {
    let id: String
    /// The application in whose part of the mount it is, or empty for the host's.
    let app: String
}

/// Translates descriptors of callers, who may see other mounts than this process.
struct FileTranslation: Sendable {
    enum Kind: Sendable { case file, directory, any }

    /// What a descriptor is of, without a look at any document.
    enum Found: Sendable {
        case host(GivenFile)
        /// In the mount of documents: the names below its root.
        case inDocuments([[UInt8]], FileStatus, isWritable: Bool)
    }

    /// The mount of documents.
    let documents: DeviceNumber?
    /// Whether a descriptor open for reading is a proof as well: for file transfers, whose
    /// interface does not ask for O_PATH.
    var takesOpenFiles = false

    /// Finds the file of a descriptor. Throws `.invalidArgument`, which does not reveal which files
    /// exist, for every descriptor that is not a proof: it was not opened with O_PATH (see
    /// `takesOpenFiles`), was opened with O_NOFOLLOW, is of another kind, or cannot be read, or
    /// this process does not find its file.
    func find(_ given: GivenDescriptor, _ kind: Kind, caller: Caller) throws(PortalError) -> Found {
        do throws(Errno) {
            let flags = fcntl(given.descriptor.number, F_GETFL)
            let isPath = flags & OpenFlags.path != 0
            guard flags >= 0, flags & O_NOFOLLOW == 0, isPath || (takesOpenFiles && flags & O_ACCMODE != O_WRONLY) else {
                throw Errno(EBADF)
            }
            // The location is found before the filesystem is asked anything. A filesystem that is
            // not on the host may be an application's, and never answer.
            let table = try MountTable.current()
            let place = try place(of: given, caller, table)
            guard place.device == documents || table.entries.contains(where: { $0.device == place.device }) else { throw Errno(ENOENT) }
            let status = try given.descriptor.status()
            let type = status.st.st_mode & S_IFMT
            guard (type == S_IFREG && kind != .directory) || (type == S_IFDIR && kind != .file) else { throw Errno(EINVAL) }
            guard may(given, R_OK), type == S_IFREG || may(given, X_OK) else { throw Errno(EACCES) }
            let isWritable = may(given, W_OK) && (isPath || type == S_IFDIR || flags & O_ACCMODE == O_RDWR)
            if let documents, place.device == documents {
                return .inDocuments(place.path.split(separator: 0x2F).map { Array($0) }, status, isWritable: isWritable)
            }
            guard let host = open(place, as: status, table) else { throw Errno(ENOENT) }
            // A document of a directory shows the files below it on the host, and not those that a
            // sandbox has there instead.
            if type == S_IFDIR, !caller.isOwner, hasOwnMounts(below: place, at: host.path, table) { throw Errno(EACCES) }
            return .host(
                GivenFile(host: host.descriptor, status: status, path: host.path, isWritable: isWritable))
        } catch {
            throw PortalError.noDescriptor
        }
    }

    /// Calls access(2), whose result is limited by the mount that the descriptor was opened
    /// through.
    private func may(_ given: GivenDescriptor, _ mode: Int32) -> Bool { access("/proc/self/fd/\(given.descriptor.number)", mode) == 0 }

    private struct Place {
        let device: DeviceNumber
        /// In its filesystem.
        let path: [UInt8]
        /// The mount by which it was reached, its path there, and all mounts of that process.
        let mount: MountEntry
        let inside: [UInt8]
        let mounts: MountTable
    }

    /// Returns its path in its filesystem, which is the same in every process that has it mounted.
    /// It comes from the mount through which it was opened. This process's table may have that
    /// mount, or the caller's, or that of the application that calls through a proxy, as every
    /// application of Flatpak does. The descriptor holds the mount, so a table that has its number
    /// has this mount.
    private func place(of given: GivenDescriptor, _ caller: Caller, _ table: MountTable) throws(Errno) -> Place {
        let mount = try MountIdentity(of: given.descriptor)
        let path = try given.descriptor.path()
        // A mount's number is its own in all namespaces. Its device may be another one than its
        // files' (btrfs). The file found is compared in the end.
        if let entry = table.entry(id: mount.id), let place = place(path, in: entry, table) { return place }
        for pid in [caller.pid, caller.instance.flatMap { FlatpakInstance.firstProcess(of: $0) }] {
            guard let pid, let theirs = try? SmallFile.mounts(of: pid), let entry = theirs.entry(id: mount.id) else { continue }
            if let place = place(path, in: entry, theirs) { return place }
            // bubblewrap makes a sandbox's root below this name, and the kernel still reports that
            // name from outside.
            let beneath = Array("/newroot".utf8)
            if MountTable.path(path, isAtOrBelow: beneath), let place = place(Array(path.dropFirst(beneath.count)), in: entry, theirs) {
                return place
            }
        }
        throw Errno(ENOENT)
    }

    private func place(_ path: [UInt8], in entry: MountEntry, _ mounts: MountTable) -> Place? {
        guard MountTable.path(path, isAtOrBelow: entry.mountpoint) else { return nil }
        let below = entry.mountpoint == [0x2F] ? path : Array(path.dropFirst(entry.mountpoint.count))
        let whole = entry.root == [0x2F] ? below : entry.root + (below == [0x2F] ? [] : below)
        return Place(
            device: entry.device, path: whole.isEmpty ? [0x2F] : whole, mount: entry, inside: path.isEmpty ? [0x2F] : path, mounts: mounts)
    }

    /// Whether the process that has the directory mounted has something else on it or below it than the host has at that place: a part that is masked, or read-only. A mount that lies
    /// there on the host as well hides the same from both, and a document does not lead into it.
    private func hasOwnMounts(below place: Place, at path: [UInt8], _ table: MountTable) -> Bool {
        // Mounts on those are not looked at: what they are on differs already, or is entered by no document.
        place.mounts.entries.contains { entry in
            guard entry.parent == place.mount.id, entry.id != place.mount.id, MountTable.path(entry.mountpoint, isAtOrBelow: place.inside)
            else { return false }
            let below = place.inside == [0x2F] ? entry.mountpoint : Array(entry.mountpoint.dropFirst(place.inside.count))
            let there = table.entry(mountpoint: below.isEmpty ? path : path == [0x2F] ? below : path + below)
            return there?.device != entry.device || there?.root != entry.root
        }
    }

    /// Opens the file at that place through any of this process's mounts, without following a link.
    /// Returns nil if it is not the same file.
    private func open(_ place: Place, as status: FileStatus, _ table: MountTable) -> (descriptor: GivenDescriptor, path: [UInt8])? {
        for entry in table.entries where entry.device == place.device && MountTable.path(place.path, isAtOrBelow: entry.root) {
            let below = entry.root == [0x2F] ? place.path : Array(place.path.dropFirst(entry.root.count))
            let path = entry.mountpoint == [0x2F] ? below : entry.mountpoint + (below == [0x2F] ? [] : below)
            let whole = path.isEmpty ? [0x2F] : path
            guard let opened = FileTranslation.open(whole), FileTranslation.isSame(opened, status) else { continue }
            return (opened, whole)
        }
        return nil
    }

    /// Opens a path without links with O_PATH.
    static func open(_ path: [UInt8]) -> GivenDescriptor? {
        guard path.first == 0x2F, !path.contains(0), let root = try? FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY) else {
            return nil
        }
        let below = path.drop { $0 == 0x2F }
        guard
            let opened = try? FileDescriptor.openBeneath(
                root.number, below.isEmpty ? [0x2E] : Array(below), OpenFlags.path | O_NOFOLLOW, crossMounts: true)
        else { return nil }
        return GivenDescriptor(opened)
    }

    static func isSame(_ opened: GivenDescriptor, _ status: FileStatus) -> Bool {
        guard let other = try? opened.descriptor.status() else { return false }
        return other.st.st_dev == status.st.st_dev && other.st.st_ino == status.st.st_ino
            && other.st.st_mode & S_IFMT == status.st.st_mode & S_IFMT && other.birth_seconds == status.birth_seconds
            && other.birth_nanoseconds == status.birth_nanoseconds
    }
}
