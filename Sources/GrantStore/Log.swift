import GrantModel

/// An event in the log.
public enum LogEvent: String, Sendable, CaseIterable {
    case granted
    case revoked
    case restored
    case removed
    case changed
    case expired
    case mounted
    case unmounted
    case denied
    case released
    case bookmarkMoved
    case bookmarkReplaced
    /// A presenter did not answer in time, or could not carry out the request.
    case passedOver
    /// A file or directory was opened through a mount with `-o audit`.
    ///
    /// This and the following are operations through such mounts.
    case opened
    case unlinked
    case directoryMade
    case directoryRemoved
    case renamed
    case linked
    case symlinkMade
    /// mknod(2): a FIFO, a socket, a device, a file.
    case nodeMade
    case modeSet
    case ownerSet
    case truncated
    case timesSet
    case attributeSet
    case attributeRemoved
    /// A change of the flags of chattr(1).
    case flagsSet
    /// A program of `grantfs run --learn` looked up a name outside of its grants.
    case wanted
    /// The proxy of `grantfs run --network-hosts` refused a host.
    ///
    /// `LogEntry.detail` is the target and the reason, separated by `: `.
    case hostRefused
    /// Entries of one grant were dropped to make room for others.
    ///
    /// `LogEntry.count` is their number since the log began.
    case forgotten

    /// The partition of the log that holds such entries.
    var partition: LogPartition {
        switch self {
        case .granted, .revoked, .restored, .removed, .changed, .expired, .mounted, .unmounted, .released, .forgotten: .administration
        case .denied, .passedOver, .bookmarkMoved, .bookmarkReplaced: .other
        default: .audit
        }
    }

    /// Whether it changes rights. The system's log then gets it as well, with the actor.
    package var changesRights: Bool {
        switch self {
        case .granted, .revoked, .restored, .removed, .changed, .expired, .released, .bookmarkReplaced: true
        default: false
        }
    }
}

/// The partitions of the log, each with its own bound.
///
/// No partition pushes out entries of another. The table has the same mapping (`Schema`).
enum LogPartition: Int64 {
    /// Changes of grants and mounts. The oldest are dropped.
    case administration = 0
    /// Operations through mounts with `-o audit`.
    ///
    /// The oldest entries of grants and users above their quota are dropped.
    case audit = 1
    /// Other events that programs and users can cause, such as refusals.
    ///
    /// The oldest entries of grants and users above their quota are dropped.
    case other = 2
}

/// One entry of the log: an event, its time, and its actor.
public struct LogEntry: Sendable {
    /// Increases with every entry, and is never reused. 0 before the entry is stored.
    public var number: Int64
    public var time: Instant
    public var event: LogEvent
    public var actor: Actor
    public var view: ViewName?
    public var grant: GrantID?
    public var name: GrantName?
    /// For people.
    public var detail: String
    /// For operations on files: the path on the host, if it is known.
    ///
    /// `error` is 0 or the errno, once the operation has ended.
    public var path: [UInt8]?
    public var error: Int32?
    /// For a rename or link: the new path.
    public var newPath: [UInt8]?
    /// For an open.
    public var access: OpenAccess?
    /// For an entry that stands for several: their number.
    public var count: Int64?

    public init(
        number: Int64 = 0, time: Instant, event: LogEvent, actor: Actor, view: ViewName? = nil, grant: GrantID? = nil,
        name: GrantName? = nil, detail: String = "", path: [UInt8]? = nil, error: Int32? = nil, newPath: [UInt8]? = nil,
        access: OpenAccess? = nil, count: Int64? = nil
    ) {
        self.path = path
        self.error = error
        self.number = number
        self.time = time
        self.event = event
        self.actor = actor
        self.view = view
        self.grant = grant
        self.name = name
        self.detail = detail
        self.newPath = newPath
        self.access = access
        self.count = count
    }

    /// Whether it records an operation that was about to start, without a result yet.
    public var isUnfinished: Bool { event.partition == .audit && error == nil }
}
