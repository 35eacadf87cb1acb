import CGrantSystem
import Glibc

/// One connection between the kernel and a FUSE daemon: a filesystem, through however many mounts, namespaces and open files it is reached.
/// It outlives its daemon and its mount as long as anybody holds anything of it.
public struct FUSEConnection: Hashable, Sendable {
    /// Of the filesystem: what is open or mapped is found by it. The kernel gives the number to another filesystem once this one is gone.
    public let device: DeviceNumber
    /// The number of the mount it was made with, which no other ever has; nil before Linux 6.8.
    public let mount: UInt64?
    /// nil where /sys/fs/fuse/connections is not mounted.
    public let entry: Entry?
    /// What its daemon calls the generation of every node but the root, by which what is held is told from that of other connections.
    public let generation: UInt32?

    /// Its directory below /sys/fs/fuse/connections, which the kernel makes with the connection and removes with it (fs/fuse/control.c).
    public struct Entry: Hashable, Sendable {
        public let inode: UInt64
        /// The time of its last change, which whoever mounted the filesystem can set.
        public let changed: Int64
        /// Tells one mount of fusectl from another: when it is unmounted and mounted again, every entry is made anew.
        public let instance: UInt64

        public init(inode: UInt64, changed: Int64, instance: UInt64) {
            self.inode = inode
            self.changed = changed
            self.instance = instance
        }
    }

    public enum Presence: Sendable {
        /// Somebody holds something of it, be it a mount alone.
        case there
        case gone
        /// A filesystem may have its number, and which one cannot be said.
        case unknown
    }

    public init(device: DeviceNumber, mount: UInt64?, entry: Entry?, generation: UInt32?) {
        self.device = device
        self.generation = generation
        self.mount = mount
        self.entry = entry
    }

    /// The connection behind the descriptor, which is of something in it. The daemon is not asked.
    public init(of descriptor: borrowing FileDescriptor, generation: UInt32) throws(Errno) {
        let identity = try MountIdentity(of: descriptor)
        var entry: Entry?
        if case .found(let found) = FUSEConnection.look(identity.device.minor) { entry = found }
        self.init(device: identity.device, mount: identity.number, entry: entry, generation: generation)
    }

    /// Whether it is there still, as far as fusectl tells.
    public var presence: Presence {
        guard let entry else { return .unknown }
        switch FUSEConnection.look(device.minor) {
        case .unreadable: return .unknown
        case .none(let instance): return instance == entry.instance ? .gone : .unknown
        case .found(let now):
            // Inode numbers come from a counter for all of the kernel, so the same one is no coincidence.
            if now.inode == entry.inode, now.instance == entry.instance || now.changed == entry.changed { return .there }
            return now.instance == entry.instance ? .gone : .unknown
        }
    }

    /// Ends it, as the death of its daemon does: whoever waits for an answer, and whoever asks from then on, gets ENOTCONN.
    ///
    /// For root, and where fusectl is mounted for the user who mounted the filesystem. ESTALE when it cannot be told from a later one of the same number.
    public func abort() throws(Errno) {
        let control = try control()
        try FUSEConnection.abort(by: control.number)
    }

    /// What `abort(by:)` takes, for whoever has to end it later, without any privilege by then.
    public func control() throws(Errno) -> FileDescriptor {
        let control = FileDescriptor(owning: try Errno.check(clinux_fuse_control_abort(device.minor)))
        // The descriptor is of one connection and no other, so what is seen now is true when it is written to.
        guard presence == .there || mount.map({ MountNumber.isThere($0) == true }) == true else { throw Errno(ESTALE) }
        return control
    }

    public static func abort(by control: Int32) throws(Errno) {
        var word = UInt8(ascii: "1")
        if write(control, &word, 1) < 0 { throw Errno(errno) }
    }

    /// The generation of what `path` leads to in a FUSE filesystem, links followed: 0 for its root. No filesystem is asked. nil where the kernel
    /// does not say.
    public static func generation(of path: String) -> UInt32? {
        var generation: UInt32 = 0
        return clinux_fuse_generation(path, &generation) == 0 ? generation : nil
    }

    private enum Look {
        case found(Entry)
        case none(instance: UInt64)
        case unreadable
    }

    private static func look(_ minor: UInt32) -> Look {
        var (inode, changed, instance): (UInt64, Int64, UInt64) = (0, 0, 0)
        switch clinux_fuse_control(minor, &inode, &changed, &instance) {
        case 0: return .found(Entry(inode: inode, changed: changed, instance: instance))
        case -ENOENT: return .none(instance: instance)
        default: return .unreadable
        }
    }
}

/// A FUSE filesystem that was mounted without a path, for root.
public struct FUSEMount: ~Copyable, Sendable {
    /// Of /dev/fuse: the kernel's requests come there. Not closed with this value: the library's session closes it, and the connection ends with it.
    public let device: Int32
    /// O_PATH, of the mount's root.
    public let root: FileDescriptor

    /// Mounts a filesystem of the type `fuse.SUBTYPE` on a directory (O_PATH). `words`: options as fusermount3 takes them. Rests on fsopen(2) and
    /// its kin. EINVAL for a word that the kernel does not know.
    public init(on directory: borrowing FileDescriptor, subtype: String, source: String, words: [String]) throws(Errno) {
        var (device, root): (Int32, Int32) = (-1, -1)
        _ = try Errno.check(clinux_fuse_mount(directory.number, subtype, source, words.joined(separator: ","), &device, &root))
        self.device = device
        self.root = FileDescriptor(owning: root)
    }
}
