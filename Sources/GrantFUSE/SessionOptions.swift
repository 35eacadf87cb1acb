import CGrantSystem
import GrantSystem

/// How a session asks to be mounted.
public struct SessionOptions: Sendable {
    /// The source in /proc/mounts; the type is `fuse.grantfs`.
    public var source: String
    /// Words for `-o`, as mount.fuse3(8) knows them, without `fsname` and `subtype`.
    public var mountWords: [String]
    /// Whether the kernel may keep changes back (FUSE_CAP_WRITEBACK_CACHE).
    public var writeBack: Bool
    /// Whether the kernel drops a file's cached data when its times or size have changed (FUSE_CAP_AUTO_INVAL_DATA).
    public var checkData: Bool
    /// Whether the file system clears set-id bits and file capabilities where a request says so (FUSE_HANDLE_KILLPRIV_V2), if the kernel
    /// offers to leave it to us. Otherwise the kernel does, with a request more for each write.
    public var killsSetID: Bool
    /// Whether files opened past the kernel's cache may be mapped shared (FUSE_DIRECT_IO_ALLOW_MMAP), if the kernel offers it.
    public var mapsDirectly: Bool
    /// Whether locks are asked for (FUSE_CAP_POSIX_LOCKS, FUSE_CAP_FLOCK_LOCKS); else the kernel has them by itself.
    public var forwardsLocks = true
    /// What keeps processors from halting while requests come quickly; nil: nothing does.
    public var idlePolling: IdlePolling?
    /// Where is noted which requests are under way, for the daemon that comes next should this one die; nil: nowhere. Mapped for ever.
    public nonisolated(unsafe) var supervised: UnsafeMutablePointer<clinux_supervised>?

    public init(
        source: String, mountWords: [String], writeBack: Bool, checkData: Bool, killsSetID: Bool, mapsDirectly: Bool,
        idlePolling: IdlePolling? = nil
    ) {
        self.source = source
        self.mountWords = mountWords
        self.writeBack = writeBack
        self.checkData = checkData
        self.killsSetID = killsSetID
        self.mapsDirectly = mapsDirectly
        self.idlePolling = idlePolling
    }
}
