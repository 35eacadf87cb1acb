import GrantSystem

/// The connections that the bus has, and since when each of them has been there.
///
/// A bus that is older than pidfds tells of a connection by the number that its process had. When that has ended another one may get the number, while somebody else still has
/// the connection. Such a process has begun after the connection was there, and by that it is told.
///
/// Locking: its own lock, for a look or a change.
final class Connections: Sendable {
    private let connections = Lock<[String: Int64]>([:])

    /// A connection is there, at the latest since now. Who is known already is not made younger.
    func add(_ name: String) {
        let now = BootClock.now
        connections.withLock { if $0[name] == nil { $0[name] = now } }
    }

    func remove(_ name: String) { connections.withLock { _ = $0.removeValue(forKey: name) } }

    var names: Set<String> { connections.withLock { Set($0.keys) } }

    /// By `BootClock`; nil when the bus has no such connection.
    func time(of name: String) -> Int64? { connections.withLock { $0[name] } }
}
