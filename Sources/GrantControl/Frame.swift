import Glibc
import GrantSystem

/// A message on the wire: its length in four bytes, the most significant first, then itself.
package enum Frame {
    /// Far more than any message has; a larger length is nonsense and ends the connection.
    static let largest = 64 << 20

    /// `deadline` in nanoseconds of `Clock.monotonic`. Throws EMSGSIZE, ETIMEDOUT, EPIPE.
    package static func send(_ message: [UInt8], over socket: borrowing UnixSocket, deadline: Int64) throws(Errno) {
        guard message.count <= largest else { throw Errno(EMSGSIZE) }
        try socket.send(header(message.count) + message, deadline: deadline)
    }

    static func header(_ count: Int) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: UInt32(truncatingIfNeeded: count) >> $0) }
    }

    /// Throws EMSGSIZE for a length above `most`, ETIMEDOUT, ECONNRESET when the other end is gone.
    package static func receive(
        over socket: borrowing UnixSocket, deadline: Int64, most: Int = .max
    ) throws(Errno) -> [UInt8] {
        let header = try socket.receive(4, deadline: deadline)
        let length = header.reduce(0) { $0 << 8 | Int(truncatingIfNeeded: $1) }
        guard length <= min(most, largest) else { throw Errno(EMSGSIZE) }
        return try socket.receive(length, deadline: deadline)
    }
}
