import GrantFleet
import GrantModel
import GrantSystem

/// Who may come in, and who has.
///
/// A session is two secrets: one in a cookie, which no script reads, and a key that the page sends in a header, which no other page can send. Browsers send a cookie to every port of a host, so on a
/// machine with several users another's server may get to see it; without the key it is worth nothing, not even for looking.
final class Admission: Sendable {
    /// What a session is worth without being used: nanoseconds.
    private static let idle: Int64 = 900 * 1_000_000_000
    private static let longest: Int64 = 12 * 3_600 * 1_000_000_000
    private static let most = 32

    private struct Session {
        let cookie: [UInt8]
        let key: [UInt8]
        let who: String
        let begun: Int64
        var used: Int64
    }

    /// nil: a certificate is enough.
    private let token: [UInt8]?
    private let sessions = Lock<[Session]>([])

    init(token: String?) { self.token = token.map { Array($0.utf8) } }

    var needsToken: Bool { token != nil }

    /// Whether these are the same, in a time that does not say how much of it is.
    static func isSame(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        var difference = UInt8(one.count == other.count ? 0 : 1)
        for index in other.indices { difference |= other[index] ^ (index < one.count ? one[index] : 0) }
        return difference == 0
    }

    /// A new session for whoever knows the token; nil when this is another one.
    func logIn(token given: String, who: String) -> (cookie: String, key: String)? {
        if let token, !Admission.isSame(Array(given.utf8), token) { return nil }
        let (cookie, key) = (FleetCredentials.password(), FleetCredentials.password())
        let now = BootClock.now
        sessions.withLock { sessions in
            Admission.forgetOld(&sessions, now)
            if sessions.count >= Admission.most, let oldest = sessions.indices.min(by: { sessions[$0].used < sessions[$1].used }) {
                sessions.remove(at: oldest)
            }
            sessions.append(Session(cookie: Array(cookie.utf8), key: Array(key.utf8), who: who, begun: now, used: now))
        }
        return (cookie, key)
    }

    /// Whose session has both; nil when there is none.
    func session(cookies: [String], key given: String?) -> String? {
        guard let given else { return nil }
        let (cookies, key, now) = (cookies.map { Array($0.utf8) }, Array(given.utf8), BootClock.now)
        return sessions.withLock { sessions in
            Admission.forgetOld(&sessions, now)
            var found: Int?
            // All of them, whichever it is.
            for index in sessions.indices {
                let hasCookie = cookies.reduce(false) { Admission.isSame($1, sessions[index].cookie) || $0 }
                let hasKey = Admission.isSame(key, sessions[index].key)
                if hasCookie, hasKey { found = index }
            }
            guard let found else { return nil }
            sessions[found].used = now
            return sessions[found].who
        }
    }

    func logOut(key given: String?) {
        let key = Array((given ?? "").utf8)
        sessions.withLock { $0.removeAll { Admission.isSame(key, $0.key) } }
    }

    private static func forgetOld(_ sessions: inout [Session], _ now: Int64) {
        sessions.removeAll { now - $0.used > idle || now - $0.begun > longest }
    }
}
