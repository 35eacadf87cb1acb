import GrantControl
import GrantModel
import GrantSystem

/// A question to a presenter, which it has to answer.
public enum PresenterQuestion: Sendable, Equatable {
    case relinquishToReader
    case relinquishToWriter
    /// Write unsaved changes: a claimant wants to read the item.
    case save
    /// Close the item: it, or one below it, is about to be deleted.
    case accommodateDeletion
    /// The grant is revoked in so many seconds, or sooner. `save` is asked as well.
    case revocation(seconds: Double)
}

/// A notice to a presenter.
public enum PresenterNotice: Sendable, Equatable {
    /// All claims that it relinquished the item for have ended.
    case reacquired
    case moved(to: [UInt8])
    /// The item may have changed.
    case changed
    case subitemAppeared([UInt8])
    case subitemChanged([UInt8])
    case subitemRemoved([UInt8])
    case subitemMoved([UInt8], to: [UInt8])
    /// No grant leads to the item any more: it was revoked, has expired, or its directory was released.
    case released
    case restored
    /// More events than the daemon keeps happened while it was not connected: look again.
    case missed
    /// A daemon has ended. Its events come again when its view is mounted again.
    case lostDaemon
}

/// A question, and the means to answer it.
public struct PresenterRequest: Sendable {
    public let question: PresenterQuestion
    /// The claimed or revoked path on the host: the presented item, one below it, or a directory above it.
    public let path: [UInt8]
    /// The time to answer. After that the claimant no longer waits for it.
    public let seconds: Double
    /// 0 before a revocation.
    public let claimantPID: Int32
    let reply: PresenterReply

    /// Answers, from any thread. An answer has no effect if the question was answered already or it
    /// is too late. `isDone` is false if it could not be done: the claimant no longer waits then
    /// either, but it is logged.
    public func answer(_ isDone: Bool = true) { reply.give(isDone) }
}

/// An answer that is given once and sent to several recipients.
///
/// Locking: its own, for a moment.
final class PresenterReply: Sendable {
    private let state = Lock<(isDone: Bool?, recipients: [@Sendable (Bool) -> Void])>((nil, []))

    /// Adds a recipient, who gets the answer at once if there is one.
    func add(_ send: @escaping @Sendable (Bool) -> Void) {
        let given = state.withLock { state in
            if state.isDone == nil { state.recipients.append(send) }
            return state.isDone
        }
        if let given { send(given) }
    }

    func give(_ isDone: Bool) {
        let recipients = state.withLock { state in
            defer { state = (state.isDone ?? isDone, []) }
            return state.recipients
        }
        for send in recipients { send(isDone) }
    }
}

extension PresenterQuestion {
    init(_ ask: PresenterAsk) {
        switch ask.kind {
        case .relinquishToReader: self = .relinquishToReader
        case .relinquishToWriter: self = .relinquishToWriter
        case .save: self = .save
        case .accommodateDeletion: self = .accommodateDeletion
        case .revocation: self = .revocation(seconds: Double(ask.milliseconds) / 1000)
        }
    }

    var isRelinquishing: Bool { self == .relinquishToReader || self == .relinquishToWriter }
}

extension PresenterNotice {
    init(_ telling: PresenterTelling) {
        switch telling.kind {
        case .reacquired: self = .reacquired
        case .moved: self = .moved(to: telling.newPath ?? telling.path)
        case .changed: self = .changed
        case .subitemAppeared: self = .subitemAppeared(telling.path)
        case .subitemChanged: self = .subitemChanged(telling.path)
        case .subitemRemoved: self = .subitemRemoved(telling.path)
        case .subitemMoved: self = .subitemMoved(telling.path, to: telling.newPath ?? telling.path)
        case .released: self = .released
        case .restored: self = .restored
        }
    }
}
