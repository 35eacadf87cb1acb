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
    /// A file or directory was opened through a mount with `-o audit`.
    case opened
    /// A presenter that was asked something was not waited for any longer, or could not do it.
    case passedOver
}

/// One line of the log: who did what, when.
public struct LogEntry: Hashable, Sendable {
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
    /// Of an opening: where the file is on the host, when that is known, and 0 or the errno that was given.
    public var path: [UInt8]?
    public var error: Int32?

    public init(
        number: Int64 = 0, time: Instant, event: LogEvent, actor: Actor, view: ViewName? = nil, grant: GrantID? = nil,
        name: GrantName? = nil, detail: String = "", path: [UInt8]? = nil, error: Int32? = nil
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
    }
}
