import Glibc
import GrantModel
import GrantSystem

/// A session with the daemon of one mount, as its client sees it.
///
/// It ends with the last reference to it.
///
/// Locking: `incoming` is held while received bytes are taken, which never waits. `outgoing` is
/// held while a message is sent, which may wait, so that messages of two threads do not mix.
public final class SessionClient: Sendable {
    private let socket: UnixSocket
    private let incoming = Lock<[UInt8]>([])
    /// Whether a message was sent in part, after which the daemon understands nothing more.
    private let outgoing = Lock(false)

    /// Nanoseconds for a daemon to accept a message.
    private static let patience: Int64 = 10_000_000_000

    /// Connects to `socket` in `directory`.
    ///
    /// - Parameter deadline: In nanoseconds of `Clock.monotonic`.
    public init(socket name: String, directory: String, deadline: Int64) throws(ControlClient.Failure) {
        socket = try ControlClient.open(name, in: directory, deadline: deadline)
        guard try ControlClient.ask(.session, over: socket, deadline: deadline) == .done else { throw .nonsense }
    }

    /// A descriptor to wait on: readable when `next` has a message.
    public var descriptor: Int32 { socket.number }

    public func send(_ request: SessionRequest) throws(ControlClient.Failure) {
        let deadline = Clock.monotonic + SessionClient.patience
        try outgoing.withLock { isBroken throws(ControlClient.Failure) in
            if isBroken { throw .hungUp }
            do throws(Errno) {
                try Frame.send(request.encoded, over: socket, deadline: deadline)
            } catch {
                isBroken = true
                // Whoever waits for messages learns it.
                _ = shutdown(socket.number, Int32(SHUT_RDWR))
                throw ControlClient.Failure(error)
            }
        }
    }

    /// The next message of the daemon. Returns nil if there is none now. Never waits.
    ///
    /// - Throws: `.hungUp` if the daemon is gone.
    public func next() throws(ControlClient.Failure) -> SessionNews? {
        try incoming.withLock { incoming throws(ControlClient.Failure) -> SessionNews? in
            while true {
                if let news = try SessionClient.take(&incoming) { return news }
                do throws(Errno) {
                    guard let bytes = try socket.receiveSome(1 << 16) else { return nil }
                    incoming += bytes
                } catch {
                    throw ControlClient.Failure(error)
                }
            }
        }
    }

    private static func take(_ incoming: inout [UInt8]) throws(ControlClient.Failure) -> SessionNews? {
        do {
            guard let message = try Frame.first(in: incoming[...]) else { return nil }
            defer { incoming.removeFirst(message.endIndex) }
            return try SessionNews.decode(Array(message))
        } catch {
            throw .nonsense
        }
    }
}
