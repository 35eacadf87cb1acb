/// How much the kernel may cache for a mount (`-o cache=`).
public enum CacheMode: String, Sendable, CaseIterable {
    /// Names, attributes and data are cached. A change made on the host shows within a second.
    case shared
    /// The granted directories are used through this mount alone: long timeouts, write-back.
    case exclusive
    /// Every operation reaches the daemon.
    case none
}

/// What idle processors do while requests come quickly (`-o idle=`).
public enum IdleMode: String, Sendable, CaseIterable {
    /// Poll where that is known to help, otherwise halt.
    case auto
    /// Poll, wherever the daemon is permitted to request it.
    case poll
    /// Halt, as the kernel sees fit.
    case halt
}

/// The parsed options of `-o`.
public struct MountOptions: Sendable, Equatable {
    public var readOnly = false
    public var allowOther = false
    /// Whether the mode of virtual directories admits only the daemon's user, even when other users may enter the mount.
    public var isPrivate = false
    public var allowSetID = false
    public var allowDevices = false
    public var noExecute = false
    public var noAccessTime = false
    public var noDirectoryAccessTime = false
    public var submounts = false
    public var cache = CacheMode.shared
    public var idle = IdleMode.auto
    /// Whether another daemon takes over when this one dies.
    public var recovers = false
    /// Which owners files have in the mount, or nil if those that they have on the host.
    package var owners: OwnerMap?
    /// The number of entries that the audit log keeps, or nil when nothing is audited.
    public var audit: Int?
    /// The operations that are audited.
    public var auditKinds = AuditKinds.all
    /// The value of `audit` without a number.
    public static let standardAudit = 200_000
    /// `store=DIR`, when given.
    public var store: String?

    public init() {}
}
