import Glibc
import GrantModel
import GrantSystem

/// A message on the wire: its length in four bytes, most significant first, then itself.
package enum Frame {
    /// Far more than any message has. A larger length is malformed and ends the connection.
    static let largest = 64 << 20

    /// Sends one message. Throws EMSGSIZE, ETIMEDOUT, EPIPE.
    ///
    /// `deadline`: in nanoseconds of `Clock.monotonic`.
    package static func send(_ message: [UInt8], over socket: borrowing UnixSocket, deadline: Int64) throws(Errno) {
        guard message.count <= largest else { throw Errno(EMSGSIZE) }
        try socket.send(framed(message), deadline: deadline)
    }

    static func framed(_ message: [UInt8]) -> [UInt8] {
        var writer = BinaryWriter()
        writer.write(message)
        return writer.bytes
    }

    /// Receives one message.
    ///
    /// Throws EMSGSIZE for a length above `most`, ETIMEDOUT, and ECONNRESET if the other end is
    /// gone.
    package static func receive(
        over socket: borrowing UnixSocket, deadline: Int64, most: Int = .max
    ) throws(Errno) -> [UInt8] {
        try socket.receive(try length(try socket.receive(4, deadline: deadline)[...], most: most), deadline: deadline)
    }

    /// The first message in `bytes`, without its length. Returns nil if it is not complete.
    ///
    /// The next message begins where it ends. Throws EMSGSIZE for a length above `most`.
    static func first(in bytes: ArraySlice<UInt8>, most: Int = .max) throws(Errno) -> ArraySlice<UInt8>? {
        guard bytes.count >= 4 else { return nil }
        let (length, message) = (try length(bytes.prefix(4), most: most), bytes.dropFirst(4))
        return message.count >= length ? message.prefix(length) : nil
    }

    private static func length(_ header: ArraySlice<UInt8>, most: Int) throws(Errno) -> Int {
        let length = header.reduce(0) { $0 << 8 | Int(truncatingIfNeeded: $1) }
        guard length <= min(most, largest) else { throw Errno(EMSGSIZE) }
        return length
    }
}
