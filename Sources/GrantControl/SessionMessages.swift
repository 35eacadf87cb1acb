import GrantModel

/// A claim's use of one item.
public struct ItemRequest: Sendable, Equatable {
    public enum Intent: UInt8, Sendable, CaseIterable {
        case content = 1
        case metadata
        case deleting
        case moving
        case merging
        case replacing
        /// Reading to make a copy that outlives the claim.
        case uploading
    }

    /// Absolute, on the host. Only the last name may be a link, and it need not exist.
    public var path: [UInt8]
    public var isWriting: Bool
    public var intent: Intent
    /// Whether presenters are asked to save before it is read.
    public var savesFirst: Bool
    /// The target of a move.
    public var newPath: [UInt8]?

    public init(path: [UInt8], isWriting: Bool, intent: Intent = .content, savesFirst: Bool = true, newPath: [UInt8]? = nil) {
        self.path = path
        self.isWriting = isWriting
        self.intent = intent
        self.savesFirst = savesFirst
        self.newPath = newPath
    }
}

/// A requested claim.
public struct ClaimRequest: Sendable, Equatable {
    /// The client's number for it, unique on each connection.
    public var number: UInt64
    /// The same in every mount of the request, and never used twice.
    public var id: GrantID
    /// The waiting claimant, in 128 bits: the same in every mount of the request.
    public var claimant: GrantID
    public var purpose: [UInt8]?
    public var items: [ItemRequest]
    /// How long operations through a mandatory grant wait for it, until EAGAIN.
    ///
    /// A value of 0 means as long as it lives.
    public var holdMilliseconds: UInt32

    public init(
        number: UInt64, id: GrantID, claimant: GrantID, purpose: [UInt8]?, items: [ItemRequest], holdMilliseconds: UInt32 = 0
    ) {
        self.number = number
        self.id = id
        self.claimant = claimant
        self.purpose = purpose
        self.items = items
        self.holdMilliseconds = holdMilliseconds
    }
}

/// A position in the events of one mount.
///
/// `epoch` is the mount's own. `number` is that of the last event seen.
public struct EventMark: Sendable, Equatable {
    public var epoch: GrantID
    public var number: UInt64

    public init(epoch: GrantID, number: UInt64) {
        self.epoch = epoch
        self.number = number
    }
}

/// A client's request on a session.
public enum SessionRequest: Sendable, Equatable {
    case claim(ClaimRequest)
    /// Ends a claim, held or waiting.
    case endClaim(UInt64)
    /// A claimed item was moved by its claimant.
    case moved(claim: UInt64, from: [UInt8], to: [UInt8])
    /// Requests every event of the mount.
    case watch(since: EventMark?)
    /// Registers a presenter.
    case present(PresentRequest)
    case endPresenting(UInt64)
    /// Answers a question. `isDone` is false if the presenter could not do it.
    case answer(question: UInt64, isDone: Bool)
    /// Warns presenters of a grant that it will be withdrawn, and asks them to save.
    ///
    /// `milliseconds` is the limit. `id` is the same in every mount of the request, and never used
    /// twice.
    case prepareRevocation(number: UInt64, id: GrantID, grant: GrantID, milliseconds: UInt32)
}

/// Why there is no claim, or no longer.
public enum ClaimRefusal: UInt8, Sendable, CaseIterable {
    /// No grant of the mount leads there.
    case outside = 1
    /// The grant is revoked or expired.
    case revoked
    case deadlock
    /// The client ended it.
    case ended
    /// Any other reason, as the text tells.
    case failed
}

/// Whether a mount leads to an item.
public enum ItemReach: UInt8, Sendable, CaseIterable {
    case outside = 0
    case reached
    /// By a grant that is revoked or expired.
    case revoked
}

/// An event in a mount.
public struct SessionEvent: Sendable, Equatable {
    public enum Kind: UInt8, Sendable, CaseIterable {
        case claimWaits = 1
        case claimGranted
        case claimEnded
        case moved
        case revoked
        /// Changes that a claim for writing has made, reported when it ends.
        case changed
        case appeared
        case removed
        case restored
    }

    /// Rises by one with each event of the mount.
    public var number: UInt64
    public var time: Instant
    public var kind: Kind
    public var path: [UInt8]
    public var newPath: [UInt8]?
    /// The process that caused it. 0 if that is not known.
    public var pid: Int32
    /// A text about a claim or a grant, for people.
    public var text: String

    public init(number: UInt64, time: Instant, kind: Kind, path: [UInt8], newPath: [UInt8]? = nil, pid: Int32, text: String = "") {
        self.number = number
        self.time = time
        self.kind = kind
        self.path = path
        self.newPath = newPath
        self.pid = pid
        self.text = text
    }
}

/// A daemon's message on a session.
public enum SessionNews: Sendable, Equatable {
    /// The claim is held, for those of its items that the mount leads to.
    case granted(claim: UInt64, reach: [ItemReach])
    /// It waits for claims of these processes.
    case waits(claim: UInt64, pids: [Int32])
    /// There is no claim of that number, or no longer.
    case refused(claim: UInt64, ClaimRefusal, text: String)
    /// The progress of the work before a claim is granted.
    case progress(claim: UInt64, stage: String, done: UInt64, total: UInt64)
    case tells(SessionEvent)
    /// Events continue from here.
    ///
    /// `hasMissed`: more events have occurred since the mark than are kept.
    case listening(mark: EventMark, hasMissed: Bool)
    /// The presenter is registered. Events after its mark follow.
    case presenting(UInt64, mark: EventMark, hasMissed: Bool)
    /// There is no presenter of that number.
    case notPresenting(UInt64, ClaimRefusal, text: String)
    case asks(PresenterAsk)
    case tellsPresenter(PresenterTelling)
    /// How many presenters were asked before a revocation, and how many have answered all.
    ///
    /// `isOver`: the revocation waits for no presenter any more.
    case preparing(UInt64, asked: UInt32, answered: UInt32, isOver: Bool)
}
