import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// One presented item, and what each mount that may lead to it has said.
///
/// Safe to send: it belongs to the thread that makes it until `PresenterHub.begin`, and to the hub's thread from then on. The outcome of
/// its start and what is shared with its `Presentation` are behind locks.
final class PresentedItem: @unchecked Sendable {
    typealias Registration = (connection: PresenterLink.Connection, number: UInt64)

    private struct Source {
        let record: MountRecord
        /// Whether it waits for its turn to be registered.
        var isQueued = false
        /// Where it was registered, answered or not.
        var registration: Registration?
        /// Whether the mount has accepted the registration.
        var isPresented = false
        var mark: EventMark?
        /// The number of claims that the presenter has relinquished the item for.
        var relinquished = 0
        /// Why the mount refused, or nil until it did.
        var refusal: CoordinationError?

        /// Whether the mount was asked or is about to be.
        var isAsked: Bool { isQueued || registration != nil }

        /// Whether the mount did not say that it leads nowhere. A slow daemon may serve it later.
        var hasFailed: Bool {
            if case .failed = refusal { true } else { false }
        }
    }

    /// The mounts of the store when the presentation was made.
    let records: [MountRecord]
    /// The state of the store that they are from.
    let storeVersion: Int64?
    private let shared: Presentation.Shared
    private let purpose: [UInt8]?
    private let timeout: UInt32
    private let onRequest: @Sendable (PresenterRequest) -> Void
    private let onNotice: @Sendable (PresenterNotice) -> Void
    private let onStoreChange: @Sendable () -> Void
    private struct QuestionKey: Hashable {
        let cause: GrantID
        let kind: PresenterAsk.Kind
        let path: [UInt8]
    }

    private var sources: [GrantID: Source] = [:]
    /// The latest questions with their replies. Other mounts may ask the same.
    private var replies: [QuestionKey: PresenterReply] = [:]
    private static let maxReplies = 256
    /// Notices that were sent and not reversed.
    private var (isReleased, hasLostDaemon) = (false, false)
    /// Until when the mounts may answer the first registration. It is nil once that is over.
    private(set) var settlesUntil: Int64?
    private let outcome = Lock<Result<Void, CoordinationError>?>(nil)
    private let hasOutcome = Semaphore()

    /// How long daemons may take to say whether they lead to the item: nanoseconds.
    private static let registrationTimeout: Int64 = 10_000_000_000

    init(
        _ records: [MountRecord], _ storeVersion: Int64?, shared: Presentation.Shared, purpose: [UInt8]?, timeout: UInt32,
        onRequest: @escaping @Sendable (PresenterRequest) -> Void, onNotice: @escaping @Sendable (PresenterNotice) -> Void,
        onStoreChange: @escaping @Sendable () -> Void
    ) {
        self.records = records
        self.storeVersion = storeVersion
        self.shared = shared
        self.purpose = purpose
        self.timeout = timeout
        self.onRequest = onRequest
        self.onNotice = onNotice
        self.onStoreChange = onStoreChange
        settlesUntil = Clock.monotonic + Self.registrationTimeout
    }

    var isEnded: Bool { shared.isEnded }

    // MARK: the start

    /// Waits until the hub knows whether a mount presents the item.
    func waitForOutcome() throws(CoordinationError) {
        // The hub's own time is over before.
        guard hasOutcome.wait(until: Clock.monotonic + 2 * Self.registrationTimeout), let outcome = outcome.withLock({ $0 }) else {
            throw .failed("the presenters of this process are busy")
        }
        try outcome.get()
    }

    /// Ends the start if all mounts have answered, or if its time is over. Returns false if no
    /// mount presents the item.
    func settle(at now: Int64) -> Bool {
        let isWaiting = sources.values.contains { $0.isAsked && !$0.isPresented }
        guard let until = settlesUntil, !isWaiting || now >= until else { return true }
        settlesUntil = nil
        let isPresented = sources.values.contains(where: \.isPresented)
        outcome.withLock { $0 = isPresented ? .success(()) : .failure(failure(isWaiting: isWaiting)) }
        hasOutcome.post()
        return isPresented
    }

    private func failure(isWaiting: Bool) -> CoordinationError {
        let path = shared.state.withLock { $0.path }
        let refusals = sources.values.compactMap(\.refusal)
        if isWaiting { return .failed("a daemon does not answer") }
        return refusals.first { $0 == .revoked(path) } ?? refusals.first { $0 != .outside(path) } ?? .outside(path)
    }

    // MARK: mounts

    /// Ends its registrations here, and returns them. An ended presentation must not keep a connection open.
    func takeRegistrations() -> [Registration] {
        defer { sources = [:] }
        return sources.values.compactMap(\.registration)
    }

    /// Whether a mount that presented the item must be tried again.
    var hasLostMount: Bool { sources.values.contains { !$0.isAsked && $0.refusal == nil } }
    /// Whether a mount could not be asked, or failed to look the item up.
    var hasFailedMount: Bool { sources.values.contains(where: \.hasFailed) }

    /// Takes notice of the mounts that there are now. Returns those to register with. `isOther`: whether the store has changed.
    func compare(with records: [MountRecord], isOther: Bool) -> [MountRecord] {
        if isEnded { return [] }
        if isOther { onStoreChange() }
        for (id, source) in sources where !source.isAsked && !records.contains(where: { $0.id == id }) {
            sources[id] = nil
            if source.refusal == nil {
                hasLostDaemon = true
                onNotice(.lostDaemon)
            }
        }
        // A mount that leads elsewhere is asked again when the grants may have changed.
        return records.filter { record in
            guard let source = sources[record.id] else { return true }
            return !source.isAsked && (isOther || source.refusal == nil || source.hasFailed)
        }
    }

    func isQueued(at record: MountRecord) {
        sources[record.id] = Source(record: record, isQueued: true, mark: sources[record.id]?.mark)
    }

    func isSent(at id: GrantID, over connection: PresenterLink.Connection, as number: UInt64) {
        sources[id]?.isQueued = false
        sources[id]?.registration = (connection, number)
    }

    func request(_ number: UInt64, at id: GrantID) -> PresentRequest {
        PresentRequest(
            number: number, path: shared.state.withLock { $0.path }, purpose: purpose, patienceMilliseconds: timeout,
            since: sources[id]?.mark)
    }

    /// A lost mount is tried again at short intervals until it is known to have ended. A mount that
    /// never answered does not delay the start, and is tried again at longer ones.
    func hasNoConnection(to record: MountRecord, _ reason: String) {
        sources[record.id]?.isQueued = false
        if sources[record.id]?.mark == nil {
            sources[record.id]?.refusal = .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))”: \(reason)")
        }
    }

    func isDisconnected(from id: GrantID) {
        let hadRelinquished = sources[id]?.relinquished ?? 0 > 0
        sources[id]?.registration = nil
        sources[id]?.isPresented = false
        sources[id]?.relinquished = 0
        sources[id]?.refusal = nil
        noteWhetherPresenting()
        // The daemon would have sent this, but no longer knows it.
        if hadRelinquished, !sources.values.contains(where: { $0.relinquished > 0 }) { onNotice(.reacquired) }
    }

    private func noteWhetherPresenting() {
        let isPresenting = sources.values.contains(where: \.isPresented)
        shared.state.withLock { if !$0.isEnded { $0.isPresenting = isPresenting } }
    }

    // MARK: messages

    enum Standing { case registered, over }

    /// Takes a message of a mount. Returns whether the registration there lasts.
    func take(_ news: SessionNews, _ id: GrantID) -> Standing {
        defer { noteWhetherPresenting() }
        switch news {
        case .presenting(_, let mark, let hasMissed):
            sources[id]?.isPresented = true
            // If a mark was sent, the events after it follow with numbers of their own.
            if sources[id]?.mark?.epoch != mark.epoch { sources[id]?.mark = mark }
            if isReleased { onNotice(.restored) }
            if hasMissed || hasLostDaemon { onNotice(.missed) }
            (isReleased, hasLostDaemon) = (false, false)
        case .notPresenting(_, let refusal, let text):
            sources[id]?.registration = nil
            sources[id]?.refusal = CoordinationError(refusal, text, shared.state.withLock { $0.path })
            if sources[id]?.mark != nil, refusal == .revoked, !isReleased {
                isReleased = true
                onNotice(.released)
            }
            return .over
        case .asks(let ask): if let client = sources[id]?.registration?.connection.client { request(ask, id, client) }
        case .tellsPresenter(let telling): tell(telling, id)
        case .granted, .waits, .refused, .progress, .tells, .listening, .preparing: break
        }
        return .registered
    }

    private func request(_ ask: PresenterAsk, _ id: GrantID, _ client: SessionClient) {
        let question = PresenterQuestion(ask)
        if question.isRelinquishing { sources[id]?.relinquished += 1 }
        let send: @Sendable (Bool) -> Void = { [number = ask.question] isDone in
            try? client.send(.answer(question: number, isDone: isDone))
        }
        // If another mount has asked the same for this claim, its answer is used: to save, the presenter may have to claim what the
        // claimant holds there.
        let key = QuestionKey(cause: ask.cause, kind: ask.kind, path: ask.path)
        if let known = replies[key] { return known.add(send) }
        if replies.count >= Self.maxReplies { replies = [:] }
        let reply = PresenterReply()
        replies[key] = reply
        reply.add(send)
        onRequest(
            PresenterRequest(
                question: question, path: ask.path, seconds: Double(ask.milliseconds) / 1000, claimantPID: ask.pid, reply: reply))
    }

    private func tell(_ telling: PresenterTelling, _ id: GrantID) {
        if telling.event > 0 { sources[id]?.mark?.number = telling.event }
        switch telling.kind {
        case .reacquired:
            if let relinquished = sources[id]?.relinquished, relinquished > 0 { sources[id]?.relinquished = relinquished - 1 }
            if sources.values.contains(where: { $0.relinquished > 0 }) { return }
        case .moved:
            if let path = telling.newPath { shared.state.withLock { $0.path = path } }
        // What another mount still leads to is not released.
        case .released:
            sources[id]?.isPresented = false
            if sources.values.contains(where: \.isPresented) || isReleased { return }
            isReleased = true
        case .restored:
            sources[id]?.isPresented = true
            // The item was missing in one mount, or came back while this process did not listen.
            if !isReleased { return onNotice(.changed) }
            isReleased = false
        case .changed, .subitemAppeared, .subitemChanged, .subitemRemoved, .subitemMoved: break
        }
        onNotice(PresenterNotice(telling))
    }
}
