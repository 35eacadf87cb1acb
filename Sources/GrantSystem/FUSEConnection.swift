import CGrantSystem
import Glibc

/// A connection between the kernel and a FUSE daemon: one filesystem.
///
/// It may be reached through several mounts, namespaces and open files. It outlives its daemon and
/// its mount for as long as any process holds a mount or a file of it.
public struct FUSEConnection: Hashable, Sendable {
    /// Identifies the filesystem, so that open and mapped files are found by it.
    ///
    /// The kernel reuses the number once this filesystem is gone.
    public let device: DeviceNumber
    /// The unique ID of its first mount, never reused. nil before Linux 6.8.
    public let mount: UInt64?
    /// It is nil if /sys/fs/fuse/connections is not mounted.
    public let entry: Entry?
    /// The generation that its daemon gives every node but the root.
    ///
    /// It distinguishes handles of this connection from those of others.
    public let generation: UInt32?

    /// The connection's directory below /sys/fs/fuse/connections.
    ///
    /// The kernel makes and removes it with the connection (fs/fuse/control.c).
    public struct Entry: Hashable, Sendable {
        public let inode: UInt64
        /// Its ctime, which the mounting user can set.
        public let changed: Int64
        /// Distinguishes mounts of fusectl: a new mount makes new entries.
        public let instance: UInt64

        public init(inode: UInt64, changed: Int64, instance: UInt64) {
            self.inode = inode
            self.changed = changed
            self.instance = instance
        }
    }

    public enum Presence: Sendable {
        /// A process still holds a part of it, or a mount exists.
        case there
        case gone
        /// A filesystem with this number may exist. Whether it is this one is unknown.
        case unknown
    }

    public init(device: DeviceNumber, mount: UInt64?, entry: Entry?, generation: UInt32?) {
        self.device = device
        self.generation = generation
        self.mount = mount
        self.entry = entry
    }

    /// Identifies the connection of a file behind a descriptor, without a call to the daemon.
    public init(of descriptor: borrowing FileDescriptor, generation: UInt32) throws(Errno) {
        let identity = try MountIdentity(of: descriptor)
        var entry: Entry?
        if case .found(let found) = FUSEConnection.look(identity.device.minor) { entry = found }
        self.init(device: identity.device, mount: identity.number, entry: entry, generation: generation)
    }

    /// Whether the connection still exists, as far as fusectl tells.
    public var presence: Presence {
        guard let entry else { return .unknown }
        switch FUSEConnection.look(device.minor) {
        case .unreadable: return .unknown
        case .none(let instance): return instance == entry.instance ? .gone : .unknown
        case .found(let now):
            // Inode numbers come from one counter of the kernel, so equal numbers are not a
            // coincidence.
            if now.inode == entry.inode, now.instance == entry.instance || now.changed == entry.changed { return .there }
            return now.instance == entry.instance ? .gone : .unknown
        }
    }

    /// Aborts the connection, as its daemon's death does.
    ///
    /// Requests that wait, and all later ones, fail with ENOTCONN. Needs root, or fusectl mounted
    /// for the user who mounted the filesystem.
    ///
    /// - Throws: ESTALE if the connection cannot be distinguished from a later one with the same
    ///   number.
    public func abort() throws(Errno) {
        let control = try control()
        try FUSEConnection.abort(by: control.number)
    }

    /// Opens the descriptor that `abort(by:)` takes.
    ///
    /// For a process that will have no privilege left when it aborts.
    ///
    /// - Parameter isServedHere: Whether this process has its device open, so that no later
    ///   connection can have its number. Before Linux 6.8 nothing else guarantees that if fusectl
    ///   is not mounted.
    public func control(isServedHere: Bool = false) throws(Errno) -> FileDescriptor {
        let control = FileDescriptor(owning: try Errno.check(clinux_fuse_control_abort(device.minor)))
        // The descriptor belongs to one connection, so the check made now still holds when it is
        // written to.
        guard isServedHere || presence == .there || mount.map({ MountNumber.isThere($0) == true }) == true else { throw Errno(ESTALE) }
        return control
    }

    public static func abort(by control: Int32) throws(Errno) {
        var word = UInt8(ascii: "1")
        if write(control, &word, 1) < 0 { throw Errno(errno) }
    }

    /// The id and generation that a daemon gave the file behind `path`, links followed.
    ///
    /// The generation of the root is 0. Never blocks. Returns nil if the kernel does not tell them.
    public static func node(of path: String) -> (id: UInt64, generation: UInt32)? {
        var (id, generation): (UInt64, UInt32) = (0, 0)
        return clinux_fuse_node(path, &id, &generation) == 0 ? (id, generation) : nil
    }

    private enum LookupResult {
        case found(Entry)
        case none(instance: UInt64)
        case unreadable
    }

    private static func look(_ minor: UInt32) -> LookupResult {
        var (inode, changed, instance): (UInt64, Int64, UInt64) = (0, 0, 0)
        switch clinux_fuse_control(minor, &inode, &changed, &instance) {
        case 0: return .found(Entry(inode: inode, changed: changed, instance: instance))
        case -ENOENT: return .none(instance: instance)
        default: return .unreadable
        }
    }
}

/// A FUSE filesystem that root has mounted without a path.
public struct FUSEMount: ~Copyable, Sendable {
    /// The /dev/fuse descriptor on which requests arrive.
    ///
    /// This value does not close it. The library's session does, and that ends the connection.
    public let device: Int32
    /// O_PATH, of the mount's root.
    public let root: FileDescriptor

    /// Mounts a filesystem of type `fuse.SUBTYPE` on a directory (O_PATH), by fsopen(2).
    ///
    /// - Parameter words: Options as fusermount3 takes them.
    /// - Throws: EINVAL for an option that the kernel does not know.
    public init(on directory: borrowing FileDescriptor, subtype: String, source: String, words: [String]) throws(Errno) {
        var (device, root): (Int32, Int32) = (-1, -1)
        _ = try Errno.check(clinux_fuse_mount(directory.number, subtype, source, words.joined(separator: ","), &device, &root))
        self.device = device
        self.root = FileDescriptor(owning: root)
    }
}
