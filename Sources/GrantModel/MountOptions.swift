/// How much the kernel may remember on behalf of a mount (`-o cache=`).
public enum CacheMode: String, Sendable, CaseIterable {
    /// Names, attributes and data are cached; a change made beside the mount shows within a second.
    case shared
    /// The granted directories are used through this mount alone: long timeouts, write-back.
    case exclusive
    /// Every operation reaches the daemon.
    case none
}

/// What processors with nothing to do are to do while requests come quickly (`-o idle=`).
public enum IdleMode: String, Sendable, CaseIterable {
    /// Poll where that is known to help, else halt.
    case auto
    /// Poll, wherever the daemon may ask for it.
    case poll
    /// Halt, as the kernel sees fit.
    case halt
}

/// What `-o` said, after parsing.
public struct MountOptions: Sendable, Equatable {
    public var readOnly = false
    public var allowOther = false
    /// The directories that exist in the mount alone are for the daemon's user by their mode, whoever may enter the mount.
    public var isPrivate = false
    public var allowSetID = false
    public var allowDevices = false
    public var noExecute = false
    public var noAccessTime = false
    public var noDirectoryAccessTime = false
    public var submounts = false
    public var cache = CacheMode.shared
    public var idle = IdleMode.auto
    /// Whether another daemon goes on when this one dies.
    public var recovers = false
    /// How many openings the log keeps; nil when none are written down.
    public var audit: Int?
    /// What of it is written down.
    public var auditKinds = AuditKinds.all
    /// What `audit` without a number means.
    public static let standardAudit = 200_000
    /// `store=DIR`, when given.
    public var store: String?

    public init() {}
}
