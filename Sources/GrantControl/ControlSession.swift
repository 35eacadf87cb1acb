import Glibc
import GrantSystem

/// A connection on which messages go both ways, as the daemon sees it.
///
/// It lives until the client goes, `end`, or the server's end.
///
/// Locking: `outgoing` is held while bytes are given to the socket, which never waits.
public final class ControlSession: Sendable {
    /// Never used twice in one daemon.
    public let number: UInt64
    public let peer: Peer
    let connection: ControlConnection
    private let outgoing: Lock<Outgoing>
    private let wake: @Sendable () -> Void

    private struct Outgoing {
        var bytes: [UInt8] = []
        var isOver = false
        /// Nothing is sent: see `hold`.
        var isHeld = false
    }

    /// The limit of unsent bytes. A client that does not take its messages is disconnected.
    private static let mostKept = 4 << 20

    init(number: UInt64, peer: Peer, connection: ControlConnection, outgoing: [UInt8] = [], wake: @escaping @Sendable () -> Void) {
        self.outgoing = Lock(Outgoing(bytes: outgoing))
        self.number = number
        self.peer = peer
        self.connection = connection
        self.wake = wake
    }

    /// The number of its socket, for as long as the session lives.
    public var descriptor: Int32 { connection.socket.number }

    /// Sends, from any thread and without waiting. Does nothing if the client is gone.
    public func send(_ news: SessionNews) {
        let message = Frame.framed(news.encoded)
        let needsHub = outgoing.withLock { outgoing -> Bool in
            if outgoing.isOver { return false }
            outgoing.bytes += message
            if outgoing.bytes.count > ControlSession.mostKept { outgoing.isOver = true }
            return outgoing.isOver || !flush(&outgoing)
        }
        if needsHub { wake() }
    }

    /// Ends the connection.
    public func end() {
        outgoing.withLock { $0.isOver = true }
        wake()
    }

    /// Whether there is something left to send.
    func hasMore() -> Bool { outgoing.withLock { !$0.bytes.isEmpty } }

    /// Stops sending, and returns the unsent bytes. Later messages are kept.
    func hold() -> [UInt8] {
        outgoing.withLock { outgoing in
            outgoing.isHeld = true
            return outgoing.bytes
        }
    }

    /// Ends `hold`.
    func endHold() { outgoing.withLock { $0.isHeld = false } }

    var isOver: Bool { outgoing.withLock { $0.isOver } }

    func sendMore() { _ = outgoing.withLock { flush(&$0) } }

    /// Sends as much as the socket accepts. True if nothing is left.
    private func flush(_ outgoing: inout Outgoing) -> Bool {
        if outgoing.isHeld { return true }
        var sent = 0
        while sent < outgoing.bytes.count {
            guard let count = try? connection.socket.sendSome(outgoing.bytes[sent...]) else {
                outgoing.isOver = true
                break
            }
            if count == 0 { break }
            sent += count
        }
        outgoing.bytes.removeFirst(sent)
        return outgoing.bytes.isEmpty && !outgoing.isOver
    }
}

/// A client's connection.
final class ControlConnection: Sendable {
    let socket: UnixSocket
    init(_ socket: consuming UnixSocket) { self.socket = socket }
}

/// A daemon's handling of sessions.
///
/// Called by one thread, which serves all of them, so it must not wait.
public protocol SessionHandler: Sendable {
    func received(_ request: SessionRequest, from session: ControlSession)
    /// Called when the client is gone. No further request follows.
    func ended(_ session: ControlSession)
}
