import CGrantSystem
import Glibc

/// A directory of one FUSE mount that is mounted at another place as well, as by `mount --bind`. Takes root with CAP_SYS_ADMIN.
public struct BoundDirectory: Sendable {
    private let identity: MountIdentity
    /// The directory that is mounted.
    public let node: FUSENode

    /// Mounts the directory `name` of `source` (a link is refused) on the directory `place`, both O_PATH; no path is looked up twice. Asks the
    /// filesystem of `source` for the name, so it hangs when that does. Throws ESTALE when the name leads to another directory than `node`.
    ///
    /// `readOnly`: the kernel refuses to write through it (EROFS), whatever the filesystem says.
    public init(
        _ name: [UInt8], _ node: FUSENode, of source: borrowing FileDescriptor, on place: borrowing FileDescriptor, readOnly: Bool
    ) throws(Errno) {
        let root = FileDescriptor(owning: try Errno.check(withCString(name) { clinux_clone_mount(source.number, $0, readOnly) }))
        guard try FUSENode(of: root) == node else { throw Errno(ESTALE) }
        _ = try Errno.check(clinux_attach_mount(root.number, place.number))
        self.node = node
        identity = try MountIdentity(of: root)
    }

    /// Lets the kernel refuse writing through it, or not any more. Throws EBUSY while a file is open for writing, ENOENT when it is mounted
    /// no longer.
    public func set(readOnly: Bool) throws(Errno) {
        guard let entry = identity.entry(in: try MountTable.current()) else { throw Errno(ENOENT) }
        let root = try FileDescriptor.openWithoutLinks(entry.mountpoint)
        guard try MountIdentity(of: root).isSame(as: identity) else { throw Errno(ENOENT) }
        _ = try Errno.check(clinux_set_mount_read_only(root.number, readOnly))
    }

    /// Whether it is mounted, by this table.
    public func isMounted(in table: MountTable) -> Bool { identity.entry(in: table) != nil }

    /// Detaches it; who has something of it open keeps that. Does nothing when it is mounted no longer.
    public func detach() throws(Errno) { try identity.detach() }
}
