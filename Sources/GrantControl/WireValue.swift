import GrantModel

/// The fault of a malformed message.
package enum CodingFlaw: Error, Equatable {
    case endsEarly
    case hasMore
    case otherVersion
    case unknownKind
    case badValue

    init(_ flaw: BinaryReader.Flaw) { self = flaw == .endsEarly ? .endsEarly : .badValue }
}

/// A value with a form on the wire, which follows from its type.
///
/// A number is big-endian. A text or a list has its length before it. An optional has a byte before
/// it that tells whether it has a value. A value composed of others is a `WireRecord` or a
/// `WireChoice`.
package protocol WireValue: Sendable {
    func write(to writer: inout BinaryWriter)
    /// Reads a value. Any bytes give a value or a flaw, never a trap.
    ///
    /// It reserves no more memory than a small multiple of their length.
    static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Self

    static func writeList(_ items: [Self], to writer: inout BinaryWriter)
    static func readList(from reader: inout BinaryReader) throws(CodingFlaw) -> [Self]
}

extension WireValue {
    package static func writeList(_ items: [Self], to writer: inout BinaryWriter) {
        writer.write(UInt32(truncatingIfNeeded: items.count))
        for item in items { item.write(to: &writer) }
    }

    /// Reserves nothing for a count that the message only claims.
    package static func readList(from reader: inout BinaryReader) throws(CodingFlaw) -> [Self] {
        let count = try UInt32.read(from: &reader)
        var items: [Self] = []
        for _ in 0..<count {
            // No item is shorter than a byte.
            if reader.isAtEnd { throw .endsEarly }
            items.append(try read(from: &reader))
        }
        return items
    }
}

extension FixedWidthInteger where Self: WireValue {
    package func write(to writer: inout BinaryWriter) { writer.write(self) }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Self {
        do { return try reader.read(Self.self) } catch { throw CodingFlaw(error) }
    }
}

extension UInt32: WireValue {}
extension UInt64: WireValue {}
extension Int32: WireValue {}
extension Int64: WireValue {}

/// A list of bytes is taken as a whole.
extension UInt8: WireValue {
    package static func writeList(_ items: [UInt8], to writer: inout BinaryWriter) { writer.write(items) }

    package static func readList(from reader: inout BinaryReader) throws(CodingFlaw) -> [UInt8] {
        do { return try reader.readBytes() } catch { throw CodingFlaw(error) }
    }
}

extension Bool: WireValue {
    package func write(to writer: inout BinaryWriter) { writer.write(self ? 1 as UInt8 : 0) }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Bool {
        switch try UInt8.read(from: &reader) {
        case 0: return false
        case 1: return true
        default: throw .badValue
        }
    }
}

extension String: WireValue {
    package func write(to writer: inout BinaryWriter) { writer.write(self) }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> String {
        do { return try reader.readString() } catch { throw CodingFlaw(error) }
    }
}

extension Array: WireValue where Element: WireValue {
    package func write(to writer: inout BinaryWriter) { Element.writeList(self, to: &writer) }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> [Element] { try Element.readList(from: &reader) }
}

extension Optional: WireValue where Wrapped: WireValue {
    package func write(to writer: inout BinaryWriter) { writer.write(optional: self) { $1.write(to: &$0) } }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Wrapped? {
        try Bool.read(from: &reader) ? try Wrapped.read(from: &reader) : nil
    }
}

/// An enumeration of numbers or of words declares `: WireValue {}` and nothing else.
extension WireValue where Self: RawRepresentable, RawValue: WireValue {
    package func write(to writer: inout BinaryWriter) { rawValue.write(to: &writer) }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Self {
        try valid(Self(rawValue: try RawValue.read(from: &reader)))
    }
}

/// Returns a value that was read, or throws if it is nil.
package func valid<Value>(_ value: Value?) throws(CodingFlaw) -> Value {
    guard let value else { throw .badValue }
    return value
}
