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
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .refused(let reason):
            writer.write(UInt8(1))
            writer.write(reason)
        case .state(let bytes, let descriptors):
            writer.write(UInt8(2))
            writer.write(bytes)
            writer.write(descriptors)
        case .ready: writer.write(UInt8(3))
        case .cannot(let reason):
            writer.write(UInt8(4))
            writer.write(reason)
        case .yours: writer.write(UInt8(5))
        case .serving: writer.write(UInt8(6))
        }
    }

    package static func read(from reader: inout MessageReader) throws(CodingFlaw) -> HandoverMessage {
        switch try reader.number(UInt8.self) {
        case 1: return .refused(String(decoding: try reader.bytes(), as: UTF8.self))
        case 2: return .state(bytes: try reader.number(UInt64.self), descriptors: try reader.number(UInt32.self))
        case 3: return .ready
        case 4: return .cannot(String(decoding: try reader.bytes(), as: UTF8.self))
        case 5: return .yours
        case 6: return .serving
        default: throw .unknownKind
        }
    }
}
