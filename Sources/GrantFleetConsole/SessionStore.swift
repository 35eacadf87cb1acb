import GrantFleet
import GrantModel
import GrantSystem

/// The sessions of the console's users.
///
/// A session has two secrets: a cookie that no script can read, and a key that the page sends in a header, which no other page can
/// send. Browsers send a host's cookies to all its ports, so on a shared machine another user's server may see the cookie. Without the
/// key it is worthless, even for reading.
final class SessionStore: Sendable {
    /// How long an unused session lasts: nanoseconds.
    private static let idleTimeout: Int64 = 900 * 1_000_000_000
    private static let maxLifetime: Int64 = 12 * 3_600 * 1_000_000_000
    private static let maxSessions = 32

    private struct Session {
        let cookie: [UInt8]
        let key: [UInt8]
        let who: String
        /// Name and port by which the browser knows the console.
        let host: String
        let begun: Int64
        var used: Int64
    }

    /// nil: a certificate is enough.
    private let token: [UInt8]?
    private let sessions = Lock<[Session]>([])

    init(token: String?) { self.token = token.map { Array($0.utf8) } }

    var needsToken: Bool { token != nil }

    /// Compares in constant time.
    static func isSame(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        var difference = UInt8(one.count == other.count ? 0 : 1)
        for index in other.indices { difference |= other[index] ^ (index < one.count ? one[index] : 0) }
        return difference == 0
    }

    /// Starts a session if the token is right. Otherwise it returns nil.
    func logIn(token given: String, who: String, host: String) -> (cookie: String, key: String)? {
        if let token, !SessionStore.isSame(Array(given.utf8), token) { return nil }
        let (cookie, key) = (FleetCredentials.password(), FleetCredentials.password())
        let now = BootClock.now
        sessions.withLock { sessions in
            SessionStore.expire(&sessions, now)
            if sessions.count >= SessionStore.maxSessions, let oldest = sessions.indices.min(by: { sessions[$0].used < sessions[$1].used })
            {
                sessions.remove(at: oldest)
            }
            sessions.append(
                Session(cookie: Array(cookie.utf8), key: Array(key.utf8), who: who, host: host.lowercased(), begun: now, used: now))
        }
        return (cookie, key)
    }

    /// Returns the user of the session with this cookie and key, if it began at this host, or nil
    /// if there is none.
    func session(cookies: [String], key given: String?, host: String) -> String? {
        guard let given else { return nil }
        let (cookies, key, now) = (cookies.map { Array($0.utf8) }, Array(given.utf8), BootClock.now)
        return sessions.withLock { sessions in
            SessionStore.expire(&sessions, now)
            var found: Int?
            // Compares all of them, so that the time does not depend on which matches.
            for index in sessions.indices {
                let hasCookie = cookies.reduce(false) { SessionStore.isSame($1, sessions[index].cookie) || $0 }
                let hasKey = SessionStore.isSame(key, sessions[index].key)
                if hasCookie, hasKey { found = index }
            }
            guard let found, sessions[found].host == host.lowercased() else { return nil }
            sessions[found].used = now
            return sessions[found].who
        }
    }

    func logOut(key given: String?) {
        let key = Array((given ?? "").utf8)
        sessions.withLock { $0.removeAll { SessionStore.isSame(key, $0.key) } }
    }

    private static func expire(_ sessions: inout [Session], _ now: Int64) {
        sessions.removeAll { now - $0.used > idleTimeout || now - $0.begun > maxLifetime }
    }
}
