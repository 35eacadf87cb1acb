import CGrantSystem
import GrantSystem

/// Options of a session's mount.
public struct SessionOptions: Sendable {
    /// The source in /proc/mounts. The type is `fuse.grantfs`.
    public var source: String
    /// Words for `-o`, as mount.fuse3(8) defines them, without `fsname` and `subtype`.
    public var mountWords: [String]
    /// Whether the kernel may delay writes (FUSE_CAP_WRITEBACK_CACHE).
    public var writeBack: Bool
    /// Whether the kernel drops a file's cached data when its times or size change.
    ///
    /// This is FUSE_CAP_AUTO_INVAL_DATA.
    public var checkData: Bool
    /// Whether the file system clears set-id bits and file capabilities on marked requests.
    ///
    /// It does so if the kernel offers FUSE_HANDLE_KILLPRIV_V2. Otherwise the kernel clears them,
    /// at the cost of one more request per write.
    public var killsSetID: Bool
    /// Whether files opened past the kernel's cache may be mapped shared.
    ///
    /// This is FUSE_DIRECT_IO_ALLOW_MMAP, if the kernel offers it.
    public var mapsDirectly: Bool
    /// Whether lock requests reach the file system. Otherwise the kernel keeps locks by itself.
    ///
    /// These are FUSE_CAP_POSIX_LOCKS and FUSE_CAP_FLOCK_LOCKS.
    public var forwardsLocks = true
    /// Keeps processors from halting while requests arrive quickly. nil disables that.
    public var idlePolling: IdlePolling?
    /// The page that records running requests for the next daemon. nil without a record.
    ///
    /// Mapped permanently.
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
