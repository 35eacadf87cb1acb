/// Encodes numbers (big-endian) and length-prefixed byte strings one after the other.
package struct BinaryWriter {
    package private(set) var bytes: [UInt8] = []

    package init() {}

    package mutating func write<Value: FixedWidthInteger>(_ value: Value) {
        withUnsafeBytes(of: value.bigEndian) { bytes.append(contentsOf: $0) }
    }

    /// Writes a length of 32 bits, then the bytes.
    package mutating func write(_ value: [UInt8]) {
        write(UInt32(truncatingIfNeeded: value.count))
        bytes.append(contentsOf: value)
    }

    package mutating func write(_ value: String) { write(Array(value.utf8)) }

    /// Writes a byte that says whether there is a value, then the value.
    package mutating func write<Value>(optional value: Value?, _ writeValue: (inout BinaryWriter, Value) -> Void) {
        write(value == nil ? 0 as UInt8 : 1)
        if let value { writeValue(&self, value) }
    }
}

/// Decodes what `BinaryWriter` encoded. Truncated or malformed input is an error, never a trap.
package struct BinaryReader {
    package enum Flaw: Error {
        case endsEarly
        case notUTF8
        case badFlag
    }

    private let bytes: ArraySlice<UInt8>
    private var position: Int

    package init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        position = bytes.startIndex
    }

    package var isAtEnd: Bool { position == bytes.endIndex }

    package mutating func read<Value: FixedWidthInteger>(_: Value.Type) throws(Flaw) -> Value {
        var value: Value = 0
        let part = try take(MemoryLayout<Value>.size)
        withUnsafeMutableBytes(of: &value) { $0.copyBytes(from: part) }
        return Value(bigEndian: value)
    }

    package mutating func readBytes() throws(Flaw) -> [UInt8] {
        let count = try read(UInt32.self)
        return Array(try take(Int(truncatingIfNeeded: count)))
    }

    package mutating func readString() throws(Flaw) -> String {
        guard let text = String(validating: try readBytes(), as: UTF8.self) else { throw .notUTF8 }
        return text
    }

    package mutating func readOptional<Value>(
        _ readValue: (inout BinaryReader) throws(Flaw) -> Value
    ) throws(Flaw) -> Value? {
        switch try read(UInt8.self) {
        case 0: return nil
        case 1: return try readValue(&self)
        default: throw .badFlag
        }
    }

    private mutating func take(_ count: Int) throws(Flaw) -> ArraySlice<UInt8> {
        guard count <= bytes.endIndex - position else { throw .endsEarly }
        defer { position += count }
        return bytes[position..<position + count]
    }
}
