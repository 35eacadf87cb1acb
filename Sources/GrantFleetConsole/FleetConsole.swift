import GrantFleet
import Glibc
import GrantModel
import GrantSystem
import GrantWeb

/// The settings of a console.
public struct ConsoleSettings: Sendable {
    /// A numeric address.
    public var address: String
    /// 0: any free port.
    public var port: UInt16
    /// More names under which browsers reach it.
    public var names: [String]
    /// PEM texts. Without certificate and key there is no TLS, which is permitted only on a loopback address.
    public var certificate: String?
    public var key: String?
    /// The authorities of accepted client certificates.
    public var authorities: String?
    /// The secret for logging in. If it is nil, a client certificate is enough.
    public var token: String?

    public init(address: String, port: UInt16) { (self.address, self.port, names) = (address, port, []) }
}

/// The fleet in a browser: shows hosts and grants, revokes and restores, with the credentials of the user who started it.
public final class FleetConsole: Sendable {
    /// The minimum length of a token that a person has chosen.
    public static let shortestToken = 32

    private let settings: ConsoleSettings
    private let listener: ListeningSocket
    private let origins: Origins
    private let sessionStore: SessionStore
    private let refusals = RefusalCount()
    private let poller: FleetPoller
    private let changes: Changes
    private let logQueue: LogQueue
    private let log: @Sendable (String) -> Void

    /// Starts listening without answering. `connect` connects a user to the fleet. `log` may block
    /// on its reader. It throws `.usage` if the console would be open to others, and `.system` if
    /// the port is taken.
    public init(
        _ settings: ConsoleSettings, connect: @escaping @Sendable (_ who: String) throws(GrantError) -> FleetStore,
        log: @escaping @Sendable (String) -> Void
    ) throws(GrantError) {
        listener = try ListeningSocket(address: settings.address, port: settings.port)
        let isSecure = settings.certificate != nil && settings.key != nil
        guard isSecure || listener.isLoopback else {
            throw GrantError(
                .usage, "the console is not served at \(settings.address)", cause: "without TLS others could listen, and come in",
                advice: "--certificate FILE --key FILE, or an address of this machine alone, such as 127.0.0.1")
        }
        guard !listener.isAny || !settings.names.isEmpty else {
            throw GrantError(
                .usage, "the console is not served at \(settings.address)", cause: "the name that browsers use is unknown",
                advice: "--name NAME, as in the browser's address line")
        }
        guard settings.token != nil || (settings.authorities != nil && isSecure) else {
            throw GrantError(.usage, "the console is not served", cause: "every user could come in")
        }
        let literal = settings.address.contains(":") ? "[\(settings.address)]" : settings.address
        let names = settings.names + (listener.isAny ? [] : [literal]) + (listener.isLoopback ? ["localhost"] : [])
        let queue = LogQueue(write: log)
        (self.settings, logQueue) = (settings, queue)
        self.log = { queue.add($0) }
        origins = Origins(isSecure: isSecure, names: names)
        sessionStore = SessionStore(token: settings.token)
        poller = FleetPoller { () throws(GrantError) in try connect("") }
        changes = Changes(poller: poller, connect: connect, log: self.log)
    }

    /// The URL for a browser.
    public var address: String {
        let name = settings.names.first ?? (settings.address.contains(":") ? "[\(settings.address)]" : settings.address)
        return "\(origins.scheme)://\(name):\(listener.port)/"
    }

    /// Answers until `wait` returns. `ready`: called when it does.
    public func run(ready: () throws(GrantError) -> Void, wait: () -> Void) throws(GrantError) {
        try logQueue.start()
        defer { logQueue.end() }
        try poller.start()
        defer { poller.end() }
        let server = try WebServer(
            listener, certificate: settings.certificate, key: settings.key, authorities: settings.authorities, limits: WebServer.Limits()
        ) { [self] request in answer(request) }
        defer { withExtendedLifetime(server) {} }
        try ready()
        wait()
    }

    // MARK: requests

    private func answer(_ request: WebRequest) -> WebReply {
        let host = request.only(.header, "Host")
        guard let host, origins.knows(host: host) else { return Self.refusal(421, "it is not known by this name here (--name)") }
        var who = "the token"
        if settings.authorities != nil {
            guard let identity = request.identity else { return Self.refusal(403, "it needs a client's certificate that is trusted here") }
            who = identity
        }
        let (method, path) = (request.method, request.path)
        guard path.hasPrefix("/api/") else {
            guard let page = Page.reply(path) else { return Self.refusal(404, "there is nothing") }
            return method == "GET" ? page : Self.refusal(405, "it is only to be read", [("Allow", "GET")])
        }
        let changes = method != "GET"
        let site = request.values(.header, "Sec-Fetch-Site")
        guard origins.isOwn(origin: request.values(.header, "Origin"), host: host, site: site.first, changes: changes) else {
            return Self.refusal(403, "another page asks for it")
        }
        switch (method, path) {
        case ("POST", "/api/login"): return logIn(request, who, at: host)
        case ("GET", "/api/state"), ("GET", "/api/grant"), ("POST", "/api/revoke"), ("POST", "/api/restore"), ("POST", "/api/logout"): break
        case (_, "/api/state"), (_, "/api/grant"): return Self.refusal(405, "it is only to be read", [("Allow", "GET")])
        case (_, "/api/login"), (_, "/api/logout"), (_, "/api/revoke"), (_, "/api/restore"):
            return Self.refusal(405, "it is only by POST", [("Allow", "POST")])
        default: return Self.refusal(404, "there is nothing")
        }
        let key = request.only(.header, "Grantfs-Key")
        // A session belongs to the certificate with which it was started, and to the host and port.
        guard let user = sessionStore.session(cookies: request.values(.cookie, cookie(host)), key: key, host: host), user == who else {
            return Self.refusal(401, "there is no session with this cookie")
        }
        request.admit()
        switch path {
        case "/api/state": return state(since: request.only(.argument, "since"))
        case "/api/grant": return grant(request.only(.argument, "id") ?? "")
        case "/api/logout":
            sessionStore.logOut(key: key)
            return WebReply(status: 204)
        default: return change(path == "/api/revoke" ? .revoke : .restore, request, user)
        }
    }

    /// The name of a session's cookie. Browsers share the cookies of all ports of a host, so it has the port that the browser knows: with
    /// a tunnel that is another than the console's own. `__Host-` has the browser refuse one that another host of the domain, or a
    /// connection without TLS, has set.
    private func cookie(_ host: String) -> String {
        let port = Origins.port(in: host) ?? (settings.certificate == nil ? 80 : 443)
        return (settings.certificate == nil ? "" : "__Host-") + "grantfs-console-\(port)"
    }

    private func logIn(_ request: WebRequest, _ who: String, at host: String) -> WebReply {
        guard let body = Self.body(request) else { return Self.refusal(415, "it is not JSON") }
        guard let session = sessionStore.logIn(token: body["token"]?.string ?? "", who: who, host: host) else {
            if let count = refusals.record() {
                log(
                    "a browser at \(request.peer) is refused: another token" + (count > 1 ? ", \(count) since the last such line" : ""))
            }
            return Self.refusal(403, sessionStore.needsToken ? "that is not the token" : "it is refused")
        }
        request.admit()
        log("\(who) came in from \(request.peer)")
        let attributes = "; Path=/; HttpOnly; SameSite=Strict" + (settings.certificate == nil ? "" : "; Secure")
        return WebReply(
            status: 200, body: JSONValue.object(["key": .string(session.key)]).text,
            headers: [("Set-Cookie", "\(cookie(host))=\(session.cookie)\(attributes)")])
    }

    private func state(since: String?) -> WebReply {
        let seen = poller.latest()
        let version = "\(seen.version).\(changes.version)"
        if version == since { return WebReply(status: 204) }
        let now = Instant(nanoseconds: Clock.realtime)
        let body = JSONValue.object([
            "version": .string(version), "now": StateJSON.time(now), "seen": StateJSON.time(seen.snapshot?.time),
            "failure": seen.failure.map { StateJSON.text($0, most: 500) } ?? .null, "fleet": seen.state, "changes": changes.json,
        ])
        return WebReply(status: 200, body: body.text)
    }

    private func grant(_ id: String) -> WebReply {
        guard let snapshot = poller.latest().snapshot else { return Self.refusal(503, "the fleet was not seen yet") }
        guard let body = StateJSON.hostStatuses(of: id, in: snapshot) else { return Self.refusal(404, "the fleet has no such grant") }
        return WebReply(status: 200, body: body.text)
    }

    private func change(_ kind: Changes.Kind, _ request: WebRequest, _ user: String) -> WebReply {
        guard let body = Self.body(request) else { return Self.refusal(415, "it is not JSON") }
        guard let id = body["id"]?.string, let revision = body["revision"]?.integer else { return Self.refusal(400, "it names no grant") }
        guard let grant = poller.latest().snapshot?.grants.first(where: { $0.id.description == id }) else {
            return Self.refusal(404, "the fleet has no such grant")
        }
        guard let number = changes.begin(kind, grant, seen: revision, who: user, from: request.peer) else {
            return Self.refusal(503, "other changes are under way")
        }
        return WebReply(status: 202, body: JSONValue.object(["change": .integer(Int64(number))]).text)
    }

    /// Requires a JSON object with its content type, which a form of another page cannot send.
    private static func body(_ request: WebRequest) -> JSONValue? {
        let type = request.only(.header, "Content-Type")?.lowercased().split(separator: ";").first
        guard type == "application/json", let body = try? JSONValue(text: request.body), case .object = body else { return nil }
        return body
    }

    private static func refusal(_ status: UInt32, _ reason: String, _ headers: [(String, String)] = []) -> WebReply {
        WebReply(status: status, body: JSONValue.object(["error": .string(reason)]).text, headers: headers)
    }
}

/// Counts refused logins, so that an attacker cannot fill the log: one line a second covers all.
private final class RefusalCount: Sendable {
    private let state = Lock((count: 0, told: Int64.min))

    /// Returns the number since the last line, or nil if none is due.
    func record() -> Int? {
        state.withLock { state in
            state.count += 1
            let now = Clock.monotonic
            if state.told != .min, now - state.told < 1_000_000_000 { return nil }
            defer { (state.count, state.told) = (0, now) }
            return state.count
        }
    }
}
