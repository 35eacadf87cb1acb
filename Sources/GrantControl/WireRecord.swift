import GrantModel

/// A value that goes over the wire as its fields, one after the other. Both directions follow from
/// `fields`:
///
///     extension GrantPlace: WireRecord {
///         static let fields = WireFields(GrantPlace.init(grant:path:)) { ($0.grant, $0.path) }
///     }
package protocol WireRecord: WireValue {
    static var fields: WireFields<Self> { get }
}

extension WireRecord {
    package func write(to writer: inout BinaryWriter) { Self.fields.write(self, &writer) }
    package static func read(from reader: inout BinaryReader) throws(CodingFlaw) -> Self { try fields.read(&reader) }
}

/// The constructor of a value, and the function that takes its fields.
///
/// The fields are in the order of the wire. Their types define how each is written.
package struct WireFields<Value>: Sendable {
    /// The number of fields.
    let count: Int
    fileprivate let write: @Sendable (Value, inout BinaryWriter) -> Void
    fileprivate let read: @Sendable (inout BinaryReader) throws(CodingFlaw) -> Value

    /// `make` throws if the fields do not fit together.
    package init<each Field: WireValue>(
        _ make: @escaping @Sendable (repeat each Field) throws(CodingFlaw) -> Value,
        _ take: @escaping @Sendable (Value) -> (repeat each Field)
    ) {
        var count = 0
        for _ in repeat (each Field).self { count += 1 }
        self.count = count
        write = { value, writer in
            let fields = take(value)
            repeat (each fields).write(to: &writer)
        }
        read = { (reader) throws(CodingFlaw) in try make(repeat try (each Field).read(from: &reader)) }
    }
}

extension GrantID: WireRecord {
    package static let fields = WireFields(GrantID.init(high:low:)) { ($0.high, $0.low) }
}

extension Instant: WireRecord {
    package static let fields = WireFields(Instant.init(nanoseconds:)) { $0.nanoseconds }
}

extension Double: WireRecord {
    package static let fields = WireFields(Double.init(bitPattern:)) { $0.bitPattern }
}

extension GrantName: WireRecord {
    package static let fields = WireFields({ (bytes) throws(CodingFlaw) in try valid(try? GrantName(entry: bytes)) }) { $0.bytes }
}

extension ViewName: WireRecord {
    package static let fields = WireFields({ (text) throws(CodingFlaw) in try valid(try? ViewName(text)) }) { $0.description }
}
