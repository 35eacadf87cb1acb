import GrantModel

/// A presenter as it registers.
public struct PresentRequest: Sendable, Equatable {
    /// The client's number for it, unique on each connection.
    public var number: UInt64
    /// Absolute, on the host. Only the last name may be a link, and it need not exist.
    public var path: [UInt8]
    /// Claims of this purpose do not ask it.
    public var purpose: [UInt8]?
    /// How long its answers may take. 0 for the default.
    public var patienceMilliseconds: UInt32
    /// Its position in the events of the mount, if it was connected before.
    public var since: EventMark?

    public init(number: UInt64, path: [UInt8], purpose: [UInt8]?, patienceMilliseconds: UInt32 = 0, since: EventMark? = nil) {
        self.number = number
        self.path = path
        self.purpose = purpose
        self.patienceMilliseconds = patienceMilliseconds
        self.since = since
    }
}

/// A question to a presenter. `SessionRequest.answer` answers it.
public struct PresenterAsk: Sendable, Equatable {
    public enum Kind: UInt8, Sendable, CaseIterable {
        case relinquishToReader = 1
        case relinquishToWriter
        case save
        case accommodateDeletion
        case revocation
    }

    public var presenter: UInt64
    /// The daemon's number for the question.
    public var question: UInt64
    public var kind: Kind
    /// The id of the claim, or of the revocation.
    ///
    /// Several mounts may ask about the same cause, as one question.
    public var cause: GrantID
    /// The path that is claimed or withdrawn.
    public var path: [UInt8]
    /// The claimant's process. 0 before a revocation.
    public var pid: Int32
    public var milliseconds: UInt32

    public init(presenter: UInt64, question: UInt64, kind: Kind, cause: GrantID, path: [UInt8], pid: Int32, milliseconds: UInt32) {
        self.cause = cause
        self.presenter = presenter
        self.question = question
        self.kind = kind
        self.path = path
        self.pid = pid
        self.milliseconds = milliseconds
    }
}

/// A message to a presenter.
public struct PresenterTelling: Sendable, Equatable {
    public enum Kind: UInt8, Sendable, CaseIterable {
        /// The claim for which it relinquished has ended.
        case reacquired = 1
        case moved
        case changed
        case subitemAppeared
        case subitemChanged
        case subitemRemoved
        case subitemMoved
        /// No grant leads to it any more.
        case released
        case restored
    }

    public var presenter: UInt64
    /// The event's number in the mount. 0 without an event.
    public var event: UInt64
    public var kind: Kind
    public var path: [UInt8]
    public var newPath: [UInt8]?

    public init(presenter: UInt64, event: UInt64, kind: Kind, path: [UInt8], newPath: [UInt8]? = nil) {
        self.presenter = presenter
        self.event = event
        self.kind = kind
        self.path = path
        self.newPath = newPath
    }
}
