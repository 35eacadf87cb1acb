import GrantModel
import GrantSystem

/// The record of a mount, which changes wait for.
///
/// It may be stale: its process may have died without removing it.
public struct MountRecord: Hashable, Sendable {
    /// Random, different for each time a view is mounted.
    public let id: GrantID
    public let shown: ShownViews
    public let mountpoint: [UInt8]
    public let pid: Int32
    /// Start time in ticks since boot, field 22 of /proc/PID/stat.
    ///
    /// It distinguishes the process from a later one with the same pid.
    public let processStart: UInt64
    /// The boot in which the process runs.
    public let bootID: String
    /// The name of the control socket in the store's `run` directory.
    public let socket: String
    public let since: Instant
    /// nil until it is mounted, and for mounts by a program before version 4 of the store.
    public var connection: FUSEConnection?

    public init(
        id: GrantID, shown: ShownViews, mountpoint: [UInt8], pid: Int32, processStart: UInt64, bootID: String, socket: String,
        since: Instant,
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

    /// The name of the mount: the view, or a label for several.
    public var view: ViewName { shown.label }

    /// Whether grants of the view are shown there.
    public func shows(_ view: ViewName) -> Bool { shown.shows(view) }
}
