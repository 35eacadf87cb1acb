import CGrantFleet
import Glibc
import GrantModel
import GrantSystem

/// A client of etcd (3.4 or later), by its JSON gateway. It uses one endpoint as long as that answers, otherwise the next. With a user
/// it logs in, and again when the token has expired.
///
/// Locking: one request at a time. Its lock is held during a wait for the network. Threads that
/// must not wait for each other have a client each.
public final class EtcdClient: @unchecked Sendable {
    // Safe to share: the connection is used, and the state changed, under `state`.
    public let settings: EtcdSettings
    /// How long one endpoint may take to answer: milliseconds.
    public let timeout: Int
    private let connection: OpaquePointer
    private let state = Lock(State())

    private struct State {
        var endpoint = 0
        var token: String?
        /// Whether the token is from the cache and not confirmed yet.
        var isCached = false
        var clock: Int64?
        /// By `Clock.monotonic`: no request lasts longer. nil: each endpoint has its own time.
        var deadline: Int64?
        /// Whether endpoints that cannot be reached are tried again until the deadline.
        var isPatient = false
    }

    /// The cache of the token for the next command, because etcd takes a tenth of a second to compare a password.
    private let tokenFile: String?

    /// Makes a client, which does not connect yet. `tokenFile` is as secret as the password, and an
    /// invalid one only costs a login.
    public init(_ settings: EtcdSettings, timeout: Int = 3_000, tokenFile: String? = nil) throws(GrantError) {
        self.settings = settings
        self.tokenFile = tokenFile
        self.timeout = timeout
        guard let connection = cfleet_open(settings.authorities, settings.certificate, settings.key) else {
            throw GrantError(.exhausted, "etcd cannot be asked", cause: "there is no memory")
        }
        self.connection = connection
        if let tokenFile, let user = settings.user, let bytes = try? PrivateFile.read(tokenFile) {
            let words = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
            if words.count == 2, words[0] == user, words[1].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) {
                state.withLock { ($0.token, $0.isCached) = (String(words[1]), true) }
            }
        }
    }

    deinit { cfleet_close(connection) }

    /// How far the server's clock was ahead of this one's at its last answer, in seconds and to the
    /// second. It is nil if unknown.
    public var clockDifference: Int64? { state.withLock { $0.clock } }

    /// Ends every request at `deadline`, a time of `Clock.monotonic`. nil: each endpoint has `timeout`.
    ///
    /// `isPatient`: endpoints that cannot be reached are tried again until then.
    public func endRequests(at deadline: Int64?, isPatient: Bool = false) {
        state.withLock { ($0.deadline, $0.isPatient) = (deadline, isPatient) }
    }

    /// The pause before all endpoints are tried again: nanoseconds.
    private static let pause: Int64 = 200_000_000

    /// The milliseconds for the next request to an endpoint. Throws `.unreachable` if the time is
    /// over.
    private func timeLeft(_ state: State) throws(EtcdFailure) -> Int {
        guard let deadline = state.deadline else { return timeout }
        let left = (deadline - Clock.monotonic) / 1_000_000
        guard left > 0 else { throw .unreachable("the time that was given is over") }
        return Int(min(Int64(timeout), left))
    }

    /// Sends a request to the first endpoint that answers.
    func call(_ path: String, _ body: [String: JSONValue]) throws(EtcdFailure) -> JSONValue {
        try state.withLock { state throws(EtcdFailure) in
            var isFresh = false
            // The failure of an earlier try, which may have been executed even if the next one
            // fails.
            var unanswered: EtcdFailure?
            for _ in 0..<4 {
                if settings.user != nil, state.token == nil {
                    do throws(EtcdFailure) { try logIn(&state) } catch { throw unanswered ?? error }
                    isFresh = true
                }
                do throws(EtcdFailure) {
                    let answer = try send(path, .object(body), &state)
                    state.isCached = false
                    return answer
                } catch {
                    if case .unanswered = error { unanswered = error }
                    // A token is tied to a Raft index. A member that has not reached it, such as one restored from a backup, waits
                    // instead of refusing it.
                    if error.isSilence {
                        state.token = nil
                        if state.isCached {
                            state.isCached = false
                            continue
                        }
                        throw unanswered ?? error
                    }
                    guard case .other(let text) = error else { throw error }
                    if text.contains(part: "invalid auth token"), !isFresh {
                        state.token = nil
                        continue
                    }
                    // Users or roles have changed meanwhile.
                    guard text.contains(part: "revision of auth store is old") else { throw error }
                    state.token = nil
                }
            }
            throw .other("etcd takes no token that it gives")
        }
    }

    private func logIn(_ state: inout State) throws(EtcdFailure) {
        guard let user = settings.user else { return }
        let body = JSONValue.object(["name": .string(user), "password": .string(settings.password ?? "")])
        let answer = try send("/v3/auth/authenticate", body, &state)
        guard let token = answer["token"]?.string else {
            throw .invalidResponse(endpoint: settings.endpoints[state.endpoint], "it gives no token")
        }
        (state.token, state.isCached) = (token, false)
        // Best effort: without it the next command logs in as well.
        if let tokenFile { try? PrivateFile.write(Array("\(user)\n\(token)\n".utf8), to: tokenFile, lasts: false) }
    }

    /// Tries the endpoints in turn, beginning with the endpoint that answered last.
    private func send(_ path: String, _ body: JSONValue, _ state: inout State) throws(EtcdFailure) -> JSONValue {
        let text = body.text
        while true {
            do throws(EtcdFailure) {
                return try sendOnce(path, text, &state)
            } catch {
                // A request without an answer may have been executed.
                guard case .unreachable = error, state.isPatient, let deadline = state.deadline,
                    deadline - Clock.monotonic > Self.pause
                else { throw error }
                usleep(UInt32(Self.pause / 1_000))
            }
        }
    }

    private func sendOnce(_ path: String, _ text: [UInt8], _ state: inout State) throws(EtcdFailure) -> JSONValue {
        var reasons: [String] = []
        var (worst, mayBeDone): (EtcdFailure?, Bool) = (nil, false)
        for _ in settings.endpoints {
            let endpoint = settings.endpoints[state.endpoint]
            do throws(EtcdFailure) {
                return try send(path, text, to: endpoint, &state)
            } catch {
                switch error {
                case .unreachable(let reason): reasons.append("\(endpoint): \(reason)")
                case .unanswered(let reason):
                    reasons.append("\(endpoint): \(reason)")
                    mayBeDone = true
                case .untrustedServer(let reason):
                    reasons.append("\(endpoint): \(reason)")
                    worst = error
                case .clientCertificate, .invalidResponse: worst = error
                default: throw error
                }
                state.endpoint = (state.endpoint + 1) % settings.endpoints.count
            }
        }
        if mayBeDone { throw .unanswered(reasons.joined(separator: "; ")) }
        throw worst ?? .unreachable(reasons.joined(separator: "; "))
    }

    private func send(_ path: String, _ body: [UInt8], to endpoint: String, _ state: inout State) throws(EtcdFailure) -> JSONValue {
        let collected = ResponseBuffer()
        let answer = post(endpoint + path, token: state.token, body, timeout: try timeLeft(state), collected)
        switch answer.outcome {
        case CFLEET_ANSWERED: break
        case CFLEET_STOPPED: throw .invalidResponse(endpoint: endpoint, "its answer is longer than any of etcd's")
        default: throw Self.failure(answer.outcome, answer.reason)
        }
        state.clock = answer.date.map { $0 - Clock.realtime / 1_000_000_000 }
        guard let value = try? JSONValue(text: collected.bytes), case .object = value else {
            if String(decoding: collected.bytes.prefix(200), as: UTF8.self).contains(part: "CommonName of client") {
                throw .clientCertificate("it has a common name (CN), with which etcd's gateway refuses every request")
            }
            throw .invalidResponse(endpoint: endpoint, "it answers \(answer.status) with text that is not JSON")
        }
        if answer.status == 200 { return value }
        guard let message = Self.message(of: value) else {
            throw .invalidResponse(endpoint: endpoint, "it answers \(answer.status)")
        }
        // A member that is partitioned or has just lost its leader: another one may know better.
        for sign in ["request timed out", "leader changed", "server stopped", "unavailable"] where message.contains(part: sign) {
            throw .unanswered(message)
        }
        for sign in ["no leader", "not healthy", "too many requests"] where message.contains(part: sign) { throw .unreachable(message) }
        throw EtcdFailure(message: message, user: settings.user ?? "")
    }

    static func message(of value: JSONValue) -> String? {
        value["message"]?.string ?? value["error"]?.string ?? value["error"]?["message"]?.string
    }

    static func failure(_ outcome: cfleet_outcome, _ reason: String) -> EtcdFailure {
        switch outcome {
        case CFLEET_DISTRUSTED: .untrustedServer(reason)
        case CFLEET_OWN_CERTIFICATE: .clientCertificate(reason)
        case CFLEET_STOPPED: .stopped
        case CFLEET_TIMED_OUT, CFLEET_BROKEN: .unanswered(reason)
        default: .unreachable(reason)
        }
    }

    // MARK: watching

    /// Sends a request with an endless response and passes each line to `line`, until that or
    /// `goesOn` (asked once a second) returns false, or the connection ends. The first line has as
    /// much time as any response, since etcd confirms the request at once. The client is in use all
    /// the while.
    func stream(
        _ path: String, _ body: [String: JSONValue], milliseconds: Int, goesOn: @escaping () -> Bool, line: @escaping (JSONValue) -> Bool
    ) throws(EtcdFailure) {
        try state.withLock { state throws(EtcdFailure) in
            if settings.user != nil, state.token == nil { try logIn(&state) }
            let endpoint = settings.endpoints[state.endpoint]
            let lines = ResponseBuffer(firstLineBy: Clock.monotonic + Int64(timeout) * 1_000_000, goesOn: goesOn, line: line)
            let answer = post(endpoint + path, token: state.token, JSONValue.object(body).text, timeout: milliseconds, lines)
            if lines.isDone { return }
            // The next try uses another endpoint and logs in again: a watch does not say whether the token was the reason.
            state.token = nil
            if answer.outcome != CFLEET_ANSWERED {
                if answer.outcome == CFLEET_TIMED_OUT, milliseconds > 0 { return }
                state.endpoint = (state.endpoint + 1) % settings.endpoints.count
                if lines.isLate { throw .unanswered("\(endpoint): no answer within \(timeout) ms") }
                throw Self.failure(answer.outcome, answer.reason)
            }
            let message = (try? JSONValue(text: lines.bytes)).flatMap { Self.message(of: $0) }
            throw message.map { EtcdFailure(message: $0, user: settings.user ?? "") } ?? .unreachable("the watch ended")
        }
    }

    private struct Answer {
        let outcome: cfleet_outcome
        let status: Int
        let date: Int64?
        let reason: String
    }

    private func post(_ url: String, token: String?, _ body: [UInt8], timeout: Int, _ collected: ResponseBuffer) -> Answer {
        var (status, date) = (0, Int64(-1))
        var reason = [CChar](repeating: 0, count: 300)
        let context = Unmanaged.passUnretained(collected).toOpaque()
        let outcome = url.withCString { url in
            body.withUnsafeBytes { bytes in
                withOptionalCString(token) { token in
                    var request = cfleet_request()
                    request.url = url
                    request.token = token
                    request.body = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
                    request.length = bytes.count
                    request.timeout = timeout
                    request.connect_timeout = self.timeout
                    request.context = context
                    request.each = { context, bytes, count in
                        guard let context, let bytes else { return false }
                        let collected = Unmanaged<ResponseBuffer>.fromOpaque(context).takeUnretainedValue()
                        return collected.add(UnsafeRawBufferPointer(start: bytes, count: count))
                    }
                    request.goes_on = { context in
                        guard let context else { return false }
                        return Unmanaged<ResponseBuffer>.fromOpaque(context).takeUnretainedValue().goesOn()
                    }
                    return withExtendedLifetime(collected) {
                        cfleet_post(connection, &request, &status, &date, &reason, reason.count)
                    }
                }
            }
        }
        return Answer(outcome: outcome, status: status, date: date < 0 ? nil : date, reason: JSONValue.text(reason))
    }
}

private func withOptionalCString<Result>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> Result) -> Result {
    guard let text else { return body(nil) }
    return text.withCString { body($0) }
}

/// The response so far: all of it, or the incomplete last line.
private final class ResponseBuffer {
    /// More than any response of etcd: its limit for a request is 1.5 MB, and lists are read in parts.
    private static let limit = 64 << 20
    var bytes: [UInt8] = []
    private let mayGoOn: () -> Bool
    private let line: ((JSONValue) -> Bool)?
    /// The deadline of the first line, or nil once it has arrived.
    private var firstLineBy: Int64?
    /// Whether `line` has ended it.
    private(set) var isDone = false
    /// Whether it was ended because there was no first line in time.
    private(set) var isLate = false

    init() { (mayGoOn, line) = ({ true }, nil) }

    init(firstLineBy: Int64, goesOn: @escaping () -> Bool, line: @escaping (JSONValue) -> Bool) {
        (self.firstLineBy, mayGoOn, self.line) = (firstLineBy, goesOn, line)
    }

    func goesOn() -> Bool {
        isLate = firstLineBy.map { Clock.monotonic > $0 } ?? false
        return !isLate && mayGoOn()
    }

    func add(_ more: UnsafeRawBufferPointer) -> Bool {
        bytes.append(contentsOf: more)
        guard bytes.count <= Self.limit else { return false }
        guard let line else { return true }
        while let end = bytes.firstIndex(of: 0x0A) {
            let text = Array(bytes[..<end])
            // An error message is kept for the caller.
            guard let value = try? JSONValue(text: text), value["result"] != nil else { return true }
            bytes.removeFirst(end + 1)
            firstLineBy = nil
            if !line(value) {
                isDone = true
                return false
            }
        }
        return true
    }
}
