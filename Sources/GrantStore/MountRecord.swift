import GrantModel
import GrantSystem

/// A mount that is to be asked for confirmation. It may be stale: the process can have died without saying so.
public struct MountRecord: Hashable, Sendable {
    /// Random, one for each time a view is mounted.
    public let id: GrantID
    public let shown: ShownViews
    public let mountpoint: [UInt8]
    public let pid: Int32
    /// Ticks since boot, field 22 of /proc/PID/stat: tells the process from a later one with the same pid.
    public let processStart: UInt64
    /// The boot the process belongs to.
    public let bootID: String
    /// The name of the control socket in the store's `run` directory.
    public let socket: String
    public let since: Instant
    /// nil until it is mounted, and of mounts that a program before version 4 of the store has made.
    public var connection: FUSEConnection?

    public init(
        id: GrantID, shown: ShownViews, mountpoint: [UInt8], pid: Int32, processStart: UInt64, bootID: String, socket: String, since: Instant,
        connection: FUSEConnection? = nil
    ) {
        self.id = id
        self.shown = shown
        self.mountpoint = mountpoint
        self.pid = pid
        self.processStart = processStart
        self.bootID = bootID
        self.socket = socket
        self.since = since
        self.connection = connection
    }

    /// What the mount is called: the view, or what stands for several.
    public var view: ViewName { shown.label }

    /// Whether grants of the view are shown there.
    public func shows(_ view: ViewName) -> Bool { shown.shows(view) }
}
