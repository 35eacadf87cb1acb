import GrantSystem

/// The connections that the bus has, and since when each of them has been there.
///
/// A bus without pidfds identifies a connection by the number that its process had. When that process has ended, another one may get the number while a third one still has the
/// connection. Such a process has begun after the connection was made, and that is how it is noticed.
///
/// Locking: its own lock, for a look or a change.
final class Connections: Sendable {
    private let connections = Lock<[String: Int64]>([:])

    /// Records a connection, which exists since now at the latest. A known connection keeps its
    /// time.
    func add(_ name: String) {
        let now = BootClock.now
        connections.withLock { if $0[name] == nil { $0[name] = now } }
    }

    func remove(_ name: String) { connections.withLock { _ = $0.removeValue(forKey: name) } }

    var names: Set<String> { connections.withLock { Set($0.keys) } }

    /// Returns its time by `BootClock`, or nil if the bus has no such connection.
    func time(of name: String) -> Int64? { connections.withLock { $0[name] } }
}
