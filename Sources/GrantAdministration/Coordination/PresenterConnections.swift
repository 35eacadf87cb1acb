import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The connections of one presentation, and what is said on them.
///
/// Safe to hand over: it belongs to the thread that makes it until that starts `run`, and to the thread of `run` from then on.
final class PresenterConnections: @unchecked Sendable {
    private struct Source {
        let record: MountRecord
        var client: SessionClient?
        /// The mount has taken it in.
        var isPresented = false
        var mark: EventMark?
        /// Claims that it has stepped aside for.
        var aside = 0
        /// Why there is none; nil until it was said.
        var refusal: CoordinationError?
    }

    private let shared: Presentation.Shared
    private let store: GrantStore
    private let purpose: [UInt8]?
    private let patience: UInt32
    private let asked: @Sendable (PresenterRequest) -> Void
    private let told: @Sendable (PresenterNotice) -> Void
    private let storeChanged: @Sendable () -> Void
    private struct Asked: Hashable {
        let cause: GrantID
        let kind: PresenterAsk.Kind
        let path: [UInt8]
    }

    private var sources: [GrantID: Source] = [:]
    /// What was asked last, of which other mounts may ask too.
    private var replies: [Asked: PresenterReply] = [:]
    private static let mostReplies = 256
    private var seen: Int64?
    /// When mounts are looked for again.
    private var next: Int64 = 0
    /// What was told and has not been taken back.
    private var (isReleased, hasLostDaemon) = (false, false)

    /// One presenter is on a connection of its own.
    private static let number: UInt64 = 1
    /// How long daemons may take to say whether they lead there: nanoseconds.
    private static let firstPatience: Int64 = 10_000_000_000
    /// Between two looks for mounts, while one was lost and otherwise: nanoseconds.
    private static let (turn, longTurn): (Int64, Int64) = (200_000_000, 1_000_000_000)

    init(
        shared: Presentation.Shared, store: GrantStore, purpose: [UInt8]?, patience: UInt32,
        asked: @escaping @Sendable (PresenterRequest) -> Void, told: @escaping @Sendable (PresenterNotice) -> Void,
        storeChanged: @escaping @Sendable () -> Void
    ) {
        self.shared = shared
        self.store = store
        self.purpose = purpose
        self.patience = patience
        self.asked = asked
        self.told = told
        self.storeChanged = storeChanged
    }

    // MARK: connecting

    /// Registers with all mounts and waits for what they say.
    func begin(_ records: [MountRecord]) throws(CoordinationError) {
        seen = try? store.dataVersion()
        for record in records { connect(record) }
        let deadline = Clock.monotonic + Self.firstPatience
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
                        number: Self.number, path: shared.state.withLock { $0.path }, purpose: purpose, patienceMilliseconds: patience,
                        since: mark)))
            source.client = client
        } catch {
            // One that was lost is tried again until it is known to have ended; one that has never answered, when the store says something else.
            if mark == nil {
                source.refusal = .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))”: \(error.description)")
            }
        }
        sources[record.id] = source
    }

    /// Looks for mounts that are not connected, when the store says something else than before; and for all that were lost.
    private func look() {
        let version = try? store.dataVersion()
        let isLost = sources.values.contains { $0.client == nil && $0.refusal == nil }
        next = Clock.monotonic + (isLost ? Self.turn : Self.longTurn)
        guard isLost || version == nil || version != seen, let records = try? store.mounts().filter({ $0.isServed(in: store.runDirectory) })
        else {
            return
        }
        let isOther = version != seen
        seen = version
        if isOther { storeChanged() }
        for (id, source) in sources where source.client == nil && !records.contains(where: { $0.id == id }) {
            sources[id] = nil
            if source.refusal == nil {
                hasLostDaemon = true
                told(.lostDaemon)
            }
        }
        // One that has refused is asked again when grants may be others.
        for record in records where sources[record.id]?.client == nil && (isOther || sources[record.id]?.refusal == nil) {
            connect(record)
        }
    }

    // MARK: the thread

    func run() {
        while !shared.isEnded {
            _ = wait(until: next)
            take()
            if Clock.monotonic >= next { look() }
        }
        for source in sources.values { try? source.client?.send(.endPresenting(Self.number)) }
    }

    /// False when the time is over.
    private func wait(until deadline: Int64) -> Bool {
        var set = PollSet()
        set.add(shared.wakeUp.reading.number)
        for source in sources.values { if let client = source.client { set.add(client.descriptor) } }
        return (try? set.wait(until: deadline)) == true
    }

    /// Takes what has come on all connections.
    private func take() {
        for id in sources.keys {
            while let client = sources[id]?.client, !shared.isEnded {
                do throws(ControlClient.Failure) {
                    guard let news = try client.next() else { break }
                    take(news, id, client)
                } catch {
                    lose(id)
                }
            }
        }
        let isPresenting = sources.values.contains(where: \.isPresented)
        shared.state.withLock { if !$0.isEnded { $0.isPresenting = isPresenting } }
    }

    private func lose(_ id: GrantID) {
        let wasAside = sources[id]?.aside ?? 0 > 0
        sources[id]?.client = nil
        sources[id]?.isPresented = false
        sources[id]?.aside = 0
        sources[id]?.refusal = nil
        next = Clock.monotonic + Self.turn
        // The daemon would have said so, and does not know it any more.
        if wasAside, !sources.values.contains(where: { $0.aside > 0 }) { told(.reacquired) }
    }

    private func take(_ news: SessionNews, _ id: GrantID, _ client: SessionClient) {
        switch news {
        case .presenting(_, let mark, let hasMissed):
            sources[id]?.isPresented = true
            // With a mark, what came after it follows, with numbers of its own.
            if sources[id]?.mark?.epoch != mark.epoch { sources[id]?.mark = mark }
            if isReleased { told(.restored) }
            if hasMissed || hasLostDaemon { told(.missed) }
            (isReleased, hasLostDaemon) = (false, false)
        case .notPresenting(_, let refusal, let text):
            sources[id]?.client = nil
            sources[id]?.refusal = CoordinationError(refusal, text, shared.state.withLock { $0.path })
            if sources[id]?.mark != nil, refusal == .revoked, !isReleased {
                isReleased = true
                told(.released)
            }
        case .asks(let ask): request(ask, id, client)
        case .tellsPresenter(let telling): tell(telling, id)
        case .granted, .waits, .refused, .progress, .tells, .listening, .preparing: break
        }
    }

    private func request(_ ask: PresenterAsk, _ id: GrantID, _ client: SessionClient) {
        let question = PresenterQuestion(ask)
        if question.isRelinquishing { sources[id]?.aside += 1 }
        let send: @Sendable (Bool) -> Void = { [number = ask.question] isDone in
            try? client.send(.answer(question: number, isDone: isDone))
        }
        // What another mount has asked for the same claim is answered with that: to save, somebody may have to claim what the claimant holds there.
        let key = Asked(cause: ask.cause, kind: ask.kind, path: ask.path)
        if let known = replies[key] { return known.add(send) }
        if replies.count >= Self.mostReplies { replies = [:] }
        let reply = PresenterReply()
        replies[key] = reply
        reply.add(send)
        asked(
            PresenterRequest(
                question: question, path: ask.path, seconds: Double(ask.milliseconds) / 1000, claimantPID: ask.pid, reply: reply))
    }

    private func tell(_ telling: PresenterTelling, _ id: GrantID) {
        if telling.event > 0 { sources[id]?.mark?.number = telling.event }
        switch telling.kind {
        case .reacquired:
            if let aside = sources[id]?.aside, aside > 0 { sources[id]?.aside = aside - 1 }
            if sources.values.contains(where: { $0.aside > 0 }) { return }
        case .moved:
            if let path = telling.newPath { shared.state.withLock { $0.path = path } }
        // What another mount leads to is not lost.
        case .released:
            sources[id]?.isPresented = false
            if sources.values.contains(where: \.isPresented) || isReleased { return }
            isReleased = true
        case .restored:
            sources[id]?.isPresented = true
            // It was away from one mount, or while nobody listened.
            if !isReleased { return told(.changed) }
            isReleased = false
        case .changed, .subitemAppeared, .subitemChanged, .subitemRemoved, .subitemMoved: break
        }
        told(PresenterNotice(telling))
    }
}
