import GrantControl
import GrantModel
import GrantSystem

/// What a presenter is asked, and has to answer.
public enum PresenterQuestion: Sendable, Equatable {
    case relinquishToReader
    case relinquishToWriter
    /// What is not written yet is to be written: somebody wants to read it.
    case save
    /// The item, or one below it, is about to be deleted: let go of it.
    case accommodateDeletion
    /// The grant is withdrawn in so many seconds, or sooner. `save` is asked beside it.
    case revocation(seconds: Double)
}

/// What a presenter is told.
public enum PresenterNotice: Sendable, Equatable {
    /// Everything that it stepped aside for has ended.
    case reacquired
    case moved(to: [UInt8])
    /// It may be another one now.
    case changed
    case subitemAppeared([UInt8])
    case subitemChanged([UInt8])
    case subitemRemoved([UInt8])
    case subitemMoved([UInt8], to: [UInt8])
    /// No grant leads to the item any more: the grant was revoked or has expired, or its directory was let go of.
    case released
    case restored
    /// More events than are kept went by while it was not connected: look anew.
    case missed
    /// A daemon has ended. It is listened to again when its view is mounted again.
    case lostDaemon
}

/// A question, with the way to answer it.
public struct PresenterRequest: Sendable {
    public let question: PresenterQuestion
    /// What is claimed, or about to be withdrawn: the presented item, one below it, or a directory above it. On the host.
    public let path: [UInt8]
    /// After so long it is passed over.
    public let seconds: Double
    /// 0 before a revocation.
    public let claimantPID: Int32
    let reply: PresenterReply

    /// Answers, from any thread; harmless when it was answered, or is too late. `isDone` is false when it could not be done: nobody waits for that
    /// any longer either, but it is written down.
    public func answer(_ isDone: Bool = true) { reply.give(isDone) }
}

/// An answer that is given once, to all who want it.
///
/// Locking: its own, for a moment.
final class PresenterReply: Sendable {
    private let state = Lock<(isDone: Bool?, ways: [@Sendable (Bool) -> Void])>((nil, []))

    /// One more who wants it: at once, if it was given.
    func add(_ send: @escaping @Sendable (Bool) -> Void) {
        let given = state.withLock { state in
            if state.isDone == nil { state.ways.append(send) }
            return state.isDone
        }
        if let given { send(given) }
    }

    func give(_ isDone: Bool) {
        let ways = state.withLock { state in
            defer { state = (state.isDone ?? isDone, []) }
            return state.ways
        }
        for send in ways { send(isDone) }
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
