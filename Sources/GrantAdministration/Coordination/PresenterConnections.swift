import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The connections of one presentation, and their messages.
///
/// Safe to send: it belongs to the thread that makes it until that starts `run`, and to the thread of `run` from then on.
final class PresenterConnections: @unchecked Sendable {
    private struct Source {
        let record: MountRecord
        var client: SessionClient?
        /// Whether the mount has accepted the registration.
        var isPresented = false
        var mark: EventMark?
        /// The number of claims that the presenter has relinquished the item for.
        var relinquished = 0
        /// Why the mount refused, or nil until it did.
        var refusal: CoordinationError?
    }

    private let shared: Presentation.Shared
    private let store: GrantStore
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
    private var storeVersion: Int64?
    /// When to look for mounts again.
    private var next: Int64 = 0
    /// Notices that were sent and not reversed.
    private var (isReleased, hasLostDaemon) = (false, false)

    /// Each presenter has its own connection.
    private static let number: UInt64 = 1
    /// How long daemons may take to say whether they lead to the item: nanoseconds.
    private static let registrationTimeout: Int64 = 10_000_000_000
    /// The time between two searches for mounts, after a loss and otherwise: nanoseconds.
    private static let (retryInterval, pollInterval): (Int64, Int64) = (200_000_000, 1_000_000_000)

    init(
        shared: Presentation.Shared, store: GrantStore, purpose: [UInt8]?, timeout: UInt32,
        onRequest: @escaping @Sendable (PresenterRequest) -> Void, onNotice: @escaping @Sendable (PresenterNotice) -> Void,
        onStoreChange: @escaping @Sendable () -> Void
    ) {
        self.shared = shared
        self.store = store
        self.purpose = purpose
        self.timeout = timeout
        self.onRequest = onRequest
        self.onNotice = onNotice
        self.onStoreChange = onStoreChange
    }

    // MARK: connecting

    /// Registers with all mounts and waits for their answers.
    func begin(_ records: [MountRecord]) throws(CoordinationError) {
        storeVersion = try? store.dataVersion()
        for record in records { connect(record) }
        let deadline = Clock.monotonic + Self.registrationTimeout
        while sources.values.contains(where: { $0.client != nil && !$0.isPresented }) {
            if !wait(until: deadline) { break }
            take()
        }
        if sources.values.contains(where: \.isPresented) { return }
        let path = shared.state.withLock { $0.path }
        let refusals = sources.values.compactMap(\.refusal)
        if sources.values.contains(where: { $0.client != nil }) { throw .failed("a daemon does not answer") }
        throw refusals.first { $0 == .revoked(path) } ?? refusals.first { $0 != .outside(path) } ?? .outside(path)
    }

    private func connect(_ record: MountRecord) {
        let mark = sources[record.id]?.mark
        var source = Source(record: record, mark: mark)
        do throws(ControlClient.Failure) {
            let client = try SessionClient(socket: record.socket, directory: store.runDirectory, deadline: Clock.deadline(seconds: 1))
            try client.send(
                .present(
                    PresentRequest(
                        number: Self.number, path: shared.state.withLock { $0.path }, purpose: purpose, patienceMilliseconds: timeout,
                        since: mark)))
            source.client = client
        } catch {
            // A lost mount is tried again until it is known to have ended. A mount that never
            // answered is tried again when the store changes.
            if mark == nil {
                source.refusal = .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))”: \(error.description)")
            }
        }
        sources[record.id] = source
    }

    /// Connects to new mounts when the store has changed, and to all lost ones.
    private func reconnect() {
        let version = try? store.dataVersion()
        let isLost = sources.values.contains { $0.client == nil && $0.refusal == nil }
        next = Clock.monotonic + (isLost ? Self.retryInterval : Self.pollInterval)
        guard isLost || version == nil || version != storeVersion,
            let records = try? store.mounts().filter({ $0.isServed(in: store.runDirectory) })
        else {
            return
        }
        let isOther = version != storeVersion
        storeVersion = version
        if isOther { onStoreChange() }
        for (id, source) in sources where source.client == nil && !records.contains(where: { $0.id == id }) {
            sources[id] = nil
            if source.refusal == nil {
                hasLostDaemon = true
                onNotice(.lostDaemon)
            }
        }
        // A mount that has refused is asked again when the grants may have changed.
        for record in records where sources[record.id]?.client == nil && (isOther || sources[record.id]?.refusal == nil) {
            connect(record)
        }
    }

    // MARK: the thread

    func run() {
        while !shared.isEnded {
            _ = wait(until: next)
            take()
            if Clock.monotonic >= next { reconnect() }
        }
        for source in sources.values { try? source.client?.send(.endPresenting(Self.number)) }
    }

    /// Returns false when the time is over.
    private func wait(until deadline: Int64) -> Bool {
        var set = PollSet()
        set.add(shared.wakeUp.reading.number)
        for source in sources.values { if let client = source.client { set.add(client.descriptor) } }
        return (try? set.wait(until: deadline)) == true
    }

    /// Reads the messages that have arrived on all connections.
    private func take() {
        for id in sources.keys {
            while let client = sources[id]?.client, !shared.isEnded {
                do throws(ControlClient.Failure) {
                    guard let news = try client.next() else { break }
                    take(news, id, client)
                } catch {
                    disconnected(id)
                }
            }
        }
        let isPresenting = sources.values.contains(where: \.isPresented)
        shared.state.withLock { if !$0.isEnded { $0.isPresenting = isPresenting } }
    }

    private func disconnected(_ id: GrantID) {
        let hadRelinquished = sources[id]?.relinquished ?? 0 > 0
        sources[id]?.client = nil
        sources[id]?.isPresented = false
        sources[id]?.relinquished = 0
        sources[id]?.refusal = nil
        next = Clock.monotonic + Self.retryInterval
        // The daemon would have sent this, but no longer knows it.
        if hadRelinquished, !sources.values.contains(where: { $0.relinquished > 0 }) { onNotice(.reacquired) }
    }

    private func take(_ news: SessionNews, _ id: GrantID, _ client: SessionClient) {
        switch news {
        case .presenting(_, let mark, let hasMissed):
            sources[id]?.isPresented = true
            // If a mark was sent, the events after it follow with numbers of their own.
            if sources[id]?.mark?.epoch != mark.epoch { sources[id]?.mark = mark }
            if isReleased { onNotice(.restored) }
            if hasMissed || hasLostDaemon { onNotice(.missed) }
            (isReleased, hasLostDaemon) = (false, false)
        case .notPresenting(_, let refusal, let text):
            sources[id]?.client = nil
            sources[id]?.refusal = CoordinationError(refusal, text, shared.state.withLock { $0.path })
            if sources[id]?.mark != nil, refusal == .revoked, !isReleased {
                isReleased = true
                onNotice(.released)
            }
        case .asks(let ask): request(ask, id, client)
        case .tellsPresenter(let telling): tell(telling, id)
        case .granted, .waits, .refused, .progress, .tells, .listening, .preparing: break
        }
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
