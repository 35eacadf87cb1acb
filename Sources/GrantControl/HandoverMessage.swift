import Glibc
import GrantModel
import GrantSystem

/// The messages of two daemons during a handover, after `ControlRequest.handOver`.
///
/// The old daemon sends `state` and descriptors with its content, and waits, paused. Without
/// `ready` it continues as before. After `yours` it continues unless it gets `serving`. From
/// `yours` on neither serves until then.
public enum HandoverMessage: Sendable, Equatable {
    /// From the old daemon: it continues. The text is for people.
    case refused(String)
    /// From the old daemon: a file of this many bytes follows, and then the other descriptors.
    case state(bytes: UInt64, descriptors: UInt32)
    /// From the new daemon: it could continue now.
    case ready
    /// From the new daemon: it cannot. The text is for people.
    case cannot(String)
    /// From the old daemon: it does not use the mount any more.
    case yours
    /// From the new daemon: the mount is its own.
    case serving

    public func send(over socket: borrowing UnixSocket, deadline: Int64) throws(Errno) {
        try Frame.send(encoded, over: socket, deadline: deadline)
    }

    /// Receives one message.
    ///
    /// - Throws: EBADMSG for a malformed message, ECONNRESET if the other daemon is gone.
    public static func receive(over socket: borrowing UnixSocket, deadline: Int64) throws(Errno) -> HandoverMessage {
        let bytes = try Frame.receive(over: socket, deadline: deadline)
        do throws(CodingFlaw) {
            return try decode(bytes)
        } catch {
            throw Errno(EBADMSG)
        }
    }
}

extension HandoverMessage: WireMessage {
    /// Texts are for people, so invalid UTF-8 in them is not an error.
    package static let cases: [WireCase<HandoverMessage>] = [
        WireCase(1, { (text: [UInt8]) in .refused(String(decoding: text, as: UTF8.self)) }) {
            if case .refused(let text) = $0 { Array(text.utf8) } else { nil }
        },
        WireCase(2, state) { if case .state(let bytes, let descriptors) = $0 { (bytes, descriptors) } else { nil } },
        WireCase(3, .ready),
        WireCase(4, { (text: [UInt8]) in .cannot(String(decoding: text, as: UTF8.self)) }) {
            if case .cannot(let text) = $0 { Array(text.utf8) } else { nil }
        },
        WireCase(5, .yours),
        WireCase(6, .serving),
    ]
}
