import GrantModel

extension ControlRequest: WireMessage {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .apply(let grants, let timeout):
            writer.write(UInt8(1))
            writer.write(timeout)
            writer.write(list: grants) { $0.write($1) }
        case .status: writer.write(UInt8(2))
        case .metrics: writer.write(UInt8(16))
        case .ping: writer.write(UInt8(3))
        case .unmount: writer.write(UInt8(4))
        case .release(let grants, let timeout):
            writer.write(UInt8(5))
            writer.write(timeout)
            writer.write(list: grants) { $0.write($1) }
        case .shut(let grants, let timeout):
            writer.write(UInt8(6))
            writer.write(timeout)
            writer.write(list: grants) { $0.write($1) }
        case .locate(let grants):
            writer.write(UInt8(7))
            writer.write(list: grants) { $0.write($1) }
        case .session: writer.write(UInt8(8))
        case .handOver: writer.write(UInt8(11))
        case .progress(let grants):
            writer.write(UInt8(9))
            writer.write(list: grants) { $0.write($1) }
        case .waits(let claimant):
            writer.write(UInt8(10))
            writer.write(claimant)
        }
    }

    package static func read(from reader: inout MessageReader) throws(CodingFlaw) -> ControlRequest {
        switch try reader.number(UInt8.self) {
        case 1:
            let (grants, timeout) = try grantsAndTimeout(from: &reader)
            return .apply(grants: grants, timeoutMilliseconds: timeout)
        case 2: return .status
        case 3: return .ping
        case 4: return .unmount
        case 5:
            let (grants, timeout) = try grantsAndTimeout(from: &reader)
            return .release(grants: grants, timeoutMilliseconds: timeout)
        case 6:
            let (grants, timeout) = try grantsAndTimeout(from: &reader)
            return .shut(grants: grants, timeoutMilliseconds: timeout)
        case 16: return .metrics
        case 7: return .locate(grants: try reader.list { (reader) throws(CodingFlaw) in try reader.id() })
        case 8: return .session
        case 9: return .progress(grants: try reader.list { (reader) throws(CodingFlaw) in try reader.id() })
        case 11: return .handOver
        case 10: return .waits(claimant: try reader.id())
        default: throw .unknownKind
        }
    }

    private static func grantsAndTimeout(from reader: inout MessageReader) throws(CodingFlaw) -> ([GrantID], UInt32) {
        let timeout = try reader.number(UInt32.self)
        return (try reader.list { (reader) throws(CodingFlaw) in try reader.id() }, timeout)
    }
}
