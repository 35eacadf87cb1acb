import GrantModel

/// One of several cases: a number, then the fields of that case. Both directions follow from
/// `cases`:
///
///     extension HandoverMessage: WireMessage {
///         package static let cases: [WireCase<HandoverMessage>] = [
///             WireCase(2, state) {
///                 if case .state(let bytes, let count) = $0 { (bytes, count) } else { nil }
///             },
///             WireCase(3, .ready),
///         ]
///     }
package protocol WireChoice: WireValue {
    /// Each number once. The first case that takes a value writes it.
    static var cases: [WireCase<Self>] { get }
}

extension WireChoice {
    package func write(to writer: inout BinaryWriter) {
        for form in Self.cases where form.write(self, &writer) { return }
        // A case that is missing from the table: the receiver reports an unknown kind. The tests
        // have a sample of each.
        writer.write(0 as UInt8)
    }

    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Self {
        let number = try UInt8.read(from: &reader)
        guard let form = cases.first(where: { $0.number == number }) else { throw .unknownKind }
        return try form.read(&reader)
    }
}

/// A case on the wire: its number, its constructor, and the function that takes its fields.
///
/// The fields are in the order of the wire.
package struct WireCase<Value>: Sendable {
    /// Never 0, and never one that had another meaning in a release.
    let number: UInt8
    /// Writes the value. Writes nothing and returns false if the value is another case.
    fileprivate let write: @Sendable (Value, inout BinaryWriter) -> Bool
    fileprivate let read: @Sendable (inout BinaryReader) throws(CodingFlaw) -> Value

    /// Makes a case from its constructor and its accessor.
    ///
    /// `make` throws if the fields do not fit together. `take` returns nil for another case.
    package init<each Field: WireValue>(
        _ number: UInt8, _ make: @escaping @Sendable (repeat each Field) throws(CodingFlaw) -> Value,
        _ take: @escaping @Sendable (Value) -> (repeat each Field)?
    ) {
        self.number = number
        write = { value, writer in
            guard let fields = take(value) else { return false }
            writer.write(number)
            repeat (each fields).write(to: &writer)
            return true
        }
        read = { (reader) throws(CodingFlaw) in try make(repeat try (each Field).read(from: &reader)) }
    }

    /// A case without fields.
    package init(_ number: UInt8, _ value: Value) where Value: Equatable & Sendable {
        self.number = number
        write = { other, writer in
            guard other == value else { return false }
            writer.write(number)
            return true
        }
        read = { (_) throws(CodingFlaw) in value }
    }
}

/// The version of the protocol.
///
/// A daemon and a command of different versions cannot communicate, and both report that.
let protocolVersion: UInt8 = 1

/// A choice that is sent: the protocol's version is before it.
package protocol WireMessage: WireChoice {}

extension WireMessage {
    package var encoded: [UInt8] {
        var writer = BinaryWriter()
        writer.write(protocolVersion)
        write(to: &writer)
        return writer.bytes
    }

    /// Reads one message that fills `bytes`.
    ///
    /// Any input gives a message or an error, never a trap.
    package static func decode(_ bytes: [UInt8]) throws(CodingFlaw) -> Self {
        var reader = BinaryReader(bytes[...])
        guard try UInt8.read(from: &reader) == protocolVersion else { throw .otherVersion }
        let message = try read(from: &reader)
        guard reader.isAtEnd else { throw .hasMore }
        return message
    }
}
