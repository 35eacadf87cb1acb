import GrantModel

/// What a claim does with one item.
public struct ItemRequest: Sendable, Equatable {
    public enum Intent: UInt8, Sendable, CaseIterable {
        case content = 1
        case metadata
        case deleting
        case moving
        case merging
        case replacing
        /// Reading, of which a copy is made that outlives the claim.
        case uploading
    }

    /// Absolute, on the host, without links but for the last name, which need not exist.
    public var path: [UInt8]
    public var isWriting: Bool
    public var intent: Intent
    /// Whether presenters are asked to save before it is read.
    public var savesFirst: Bool
    /// Of what is moved: where to.
    public var newPath: [UInt8]?

    public init(path: [UInt8], isWriting: Bool, intent: Intent = .content, savesFirst: Bool = true, newPath: [UInt8]? = nil) {
        self.path = path
        self.isWriting = isWriting
        self.intent = intent
        self.savesFirst = savesFirst
        self.newPath = newPath
    }
}

/// A claim as it is asked for.
public struct ClaimRequest: Sendable, Equatable {
    /// The client's number for it, once on each connection.
    public var number: UInt64
    /// The same in every mount that is asked, and never used twice.
    public var id: GrantID
    /// Who waits, in 128 bits: the same in every mount that is asked.
    public var claimant: GrantID
    public var purpose: [UInt8]?
    public var items: [ItemRequest]
    /// How long operations through a mandatory grant wait for it, until EAGAIN; 0 for as long as it lives.
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

/// A place in the events of one mount: `epoch` is the mount's own, `number` that of the last event seen.
public struct EventMark: Sendable, Equatable {
    public var epoch: GrantID
    public var number: UInt64

    public init(epoch: GrantID, number: UInt64) {
        self.epoch = epoch
        self.number = number
    }
}

/// What a client asks on a session.
public enum SessionRequest: Sendable, Equatable {
    case claim(ClaimRequest)
    /// Gives a claim back, held or waiting.
    case endClaim(UInt64)
    /// A claimed item was moved by its claimant.
    case moved(claim: UInt64, from: [UInt8], to: [UInt8])
    /// Wants every event of the mount.
    case watch(since: EventMark?)
    /// Registers a presenter.
    case present(PresentRequest)
    case endPresenting(UInt64)
    /// To a question that was asked; `isDone` is false where a presenter could not do it.
    case answer(question: UInt64, isDone: Bool)
    /// Presenters of a grant are told that it is about to be withdrawn, and asked to save, for so long at the most. `id` is the same in every
    /// mount that is asked, and never used twice.
    case prepareRevocation(number: UInt64, id: GrantID, grant: GrantID, milliseconds: UInt32)
}

/// Why there is no claim, or no longer.
public enum ClaimRefusal: UInt8, Sendable, CaseIterable {
    /// No grant of the mount leads there.
    case outside = 1
    /// The grant is revoked or expired.
    case revoked
    case deadlock
    /// The client gave it back.
    case ended
    /// Anything else; the text says what.
    case failed
}

/// Whether a mount leads to an item.
public enum ItemReach: UInt8, Sendable, CaseIterable {
    case outside = 0
    case reached
    /// By a grant that is revoked or expired.
    case revoked
}

/// Something that happened in a mount.
public struct SessionEvent: Sendable, Equatable {
    public enum Kind: UInt8, Sendable, CaseIterable {
        case claimWaits = 1
        case claimGranted
        case claimEnded
        case moved
        case revoked
        /// What a claim for writing has come to, when it ends.
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
    /// Who did it; 0 where that is not known.
    public var pid: Int32
    /// Of a claim or a grant, for people.
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

/// What a daemon says on a session.
public enum SessionNews: Sendable, Equatable {
    /// The claim is held, for those of its items that the mount leads to.
    case granted(claim: UInt64, reach: [ItemReach])
    /// It waits for claims of these processes.
    case waits(claim: UInt64, pids: [Int32])
    /// There is no claim of that number, or no longer.
    case refused(claim: UInt64, ClaimRefusal, text: String)
    /// How far the work before a claim is granted has come.
    case progress(claim: UInt64, stage: String, done: UInt64, total: UInt64)
    case tells(SessionEvent)
    /// Events go on from here. `hasMissed`: more went by since the mark than is kept.
    case listening(mark: EventMark, hasMissed: Bool)
    /// The presenter is registered; what came after its mark follows.
    case presenting(UInt64, mark: EventMark, hasMissed: Bool)
    /// There is no presenter of that number.
    case notPresenting(UInt64, ClaimRefusal, text: String)
    case asks(PresenterAsk)
    case tellsPresenter(PresenterTelling)
    /// How many presenters were asked before a revocation, and how many have answered all; `isOver`: nobody is waited for any more.
    case preparing(UInt64, asked: UInt32, answered: UInt32, isOver: Bool)
}
