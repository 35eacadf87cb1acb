import GrantModel

/// What is wrong with a message.
package enum CodingFlaw: Error, Equatable {
    case endsEarly
    case hasMore
    case otherVersion
    case unknownKind
    case badValue
}

/// Messages as bytes: the protocol's version, the kind, the fields.
package protocol WireMessage: Sendable {
    func write(to writer: inout BinaryWriter)
    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> Self
}

/// The version of the protocol. A daemon and a command of different versions do not talk; both say so.
let protocolVersion: UInt8 = 1

extension WireMessage {
    package var encoded: [UInt8] {
        var writer = BinaryWriter()
        writer.write(protocolVersion)
        write(to: &writer)
        return writer.bytes
    }

    /// Reads one message that fills `bytes`. Any input is answered with a message or an error, never with a trap.
    package static func decode(_ bytes: [UInt8]) throws(CodingFlaw) -> Self {
        var reader = MessageReader(bytes)
        guard try reader.number(UInt8.self) == protocolVersion else { throw .otherVersion }
        let message = try read(from: &reader)
        guard reader.isAtEnd else { throw .hasMore }
        return message
    }
}

/// A reader that knows the model's values.
package struct MessageReader {
    private var reader: BinaryReader

    init(_ bytes: [UInt8]) { reader = BinaryReader(bytes[...]) }

    var isAtEnd: Bool { reader.isAtEnd }

    mutating func number<Value: FixedWidthInteger>(_ type: Value.Type) throws(CodingFlaw) -> Value {
        do { return try reader.read(type) } catch { throw .endsEarly }
    }

    mutating func bool() throws(CodingFlaw) -> Bool {
        switch try number(UInt8.self) {
        case 0: return false
        case 1: return true
        default: throw .badValue
        }
    }

    mutating func bytes() throws(CodingFlaw) -> [UInt8] {
        do { return try reader.readBytes() } catch { throw .endsEarly }
    }

    mutating func string() throws(CodingFlaw) -> String {
        guard let text = String(validating: try bytes(), as: UTF8.self) else { throw .badValue }
        return text
    }

    mutating func id() throws(CodingFlaw) -> GrantID {
        GrantID(high: try number(UInt64.self), low: try number(UInt64.self))
    }

    /// A count, then that many items. Nothing is reserved for a count that is only claimed.
    mutating func list<Item>(_ item: (inout MessageReader) throws(CodingFlaw) -> Item) throws(CodingFlaw) -> [Item] {
        let count = try number(UInt32.self)
        var items: [Item] = []
        for _ in 0..<count { items.append(try item(&self)) }
        return items
    }
}

extension BinaryWriter {
    mutating func write(_ id: GrantID) {
        write(id.high)
        write(id.low)
    }

    mutating func write(_ value: Bool) { write(value ? 1 as UInt8 : 0) }

    mutating func write<Item>(list items: [Item], _ item: (inout BinaryWriter, Item) -> Void) {
        write(UInt32(truncatingIfNeeded: items.count))
        for value in items { item(&self, value) }
    }
}
