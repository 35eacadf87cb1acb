import Glibc
import GrantModel
import GrantSystem

/// What two daemons say to each other when one hands a mount over to the other, after `ControlRequest.handOver`.
///
/// The old one says `state`, sends it as descriptors, and waits, paused. It goes on as if nothing had been asked unless it hears `ready`, and again unless it hears
/// `serving` after `yours`; from `yours` to then neither serves.
public enum HandoverMessage: Sendable, Equatable {
    /// By the old one: it goes on; the text is for people.
    case refused(String)
    /// By the old one: a file of so many bytes follows, and then so many other descriptors.
    case state(bytes: UInt64, descriptors: UInt32)
    /// By the new one: it could go on now.
    case ready
    /// By the new one: it cannot; the text is for people.
    case cannot(String)
    /// By the old one: it does nothing any more with the mount.
    case yours
    /// By the new one: the mount is its own.
    case serving

    public func send(over socket: borrowing UnixSocket, deadline: Int64) throws(Errno) {
        try Frame.send(encoded, over: socket, deadline: deadline)
    }

    /// EBADMSG for what is no such message, ECONNRESET when the other daemon is gone.
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
    /// Texts are for people: what is no UTF-8 in them is no reason to give up.
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
