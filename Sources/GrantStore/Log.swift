import GrantModel

/// What the log records.
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
    /// A presenter that was asked something was not waited for any longer, or could not do it.
    case passedOver
    /// A file or directory was opened through a mount with `-o audit`. From here on: what is done through such a mount.
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
    /// What chattr(1) sets.
    case flagsSet
    /// Entries of one grant made room for others' (`LogEntry.count` of them, since the log began).
    case forgotten

    /// What share of the log it is kept in.
    var kept: Kept {
        switch self {
        case .granted, .revoked, .restored, .removed, .changed, .expired, .mounted, .unmounted, .released, .forgotten: .acts
        case .denied, .passedOver, .bookmarkMoved, .bookmarkReplaced: .consequences
        default: .uses
        }
    }

    /// What changes who may what: the system's log hears of it as well, with who did it.
    var isAct: Bool {
        switch self {
        case .granted, .revoked, .restored, .removed, .changed, .expired, .released, .bookmarkReplaced: true
        default: false
        }
    }
}

/// Shares of the log, with a bound each. None pushes out entries of another. The table says the same of each event (`Schema`).
enum Kept: Int64 {
    /// What was done to grants and mounts. The oldest go.
    case acts = 0
    /// What programs do through mounts with `-o audit`. Who has most loses his oldest.
    case uses = 1
    /// What programs and users can bring about otherwise, such as refusals. Who has most loses his oldest.
    case consequences = 2
}

/// One line of the log: who did what, when.
public struct LogEntry: Sendable {
    /// Rises with every entry and is never used again; 0 before the entry is stored.
    public var number: Int64
    public var time: Instant
    public var event: LogEvent
    public var actor: Actor
    public var view: ViewName?
    public var grant: GrantID?
    public var name: GrantName?
    /// For people.
    public var detail: String
    /// Of what was done to files: where the file is on the host, when that is known, and 0 or the errno that was given, when it has ended.
    public var path: [UInt8]?
    public var error: Int32?
    /// Of what was renamed or linked: where to.
    public var newPath: [UInt8]?
    /// Of an opening.
    public var access: OpenAccess?
    /// Of what stands for several: how many.
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

    /// Whether it is of something that was about to be done to a file, and nobody has said how it ended.
    public var hasNotEnded: Bool { event.kept == .uses && error == nil }
}
