import GrantSystem

/// A descriptor that came with a message, owned here.
public final class GivenDescriptor: Sendable {
    public let descriptor: FileDescriptor

    public init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
}

/// What a message carries. Numbers keep their value and lose their width. Structures and arrays are
/// lists.
public indirect enum BusValue: Sendable {
    /// Text, object paths, signatures.
    case text(String)
    case bool(Bool)
    case unsigned(UInt64)
    case signed(Int64)
    case real(Double)
    case descriptor(GivenDescriptor)
    /// An array of bytes.
    case bytes([UInt8])
    case list([BusValue])
    case pair(BusValue, BusValue)
    case variant(signature: String, BusValue)

    var text: String? { if case .text(let text) = self { text } else { nil } }
    var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    var unsigned: UInt64? { if case .unsigned(let value) = self { value } else { nil } }
    var descriptor: GivenDescriptor? { if case .descriptor(let value) = self { value } else { nil } }
    var bytes: [UInt8]? { if case .bytes(let bytes) = self { bytes } else { nil } }
    var list: [BusValue]? { if case .list(let list) = self { list } else { nil } }
    var variant: BusValue? { if case .variant(_, let value) = self { value } else { nil } }

    /// A list of texts, or nil when it is anything else.
    var texts: [String]? {
        guard let list else { return nil }
        let texts = list.compactMap(\.text)
        return texts.count == list.count ? texts : nil
    }

    /// The value of a name in a dictionary of variants.
    func option(_ name: String) -> BusValue? {
        for case .pair(.text(name), let value) in list ?? [] { return value.variant }
        return nil
    }

    /// A path as D-Bus carries it: bytes, and the NUL that ends them. It is nil when it is none, or
    /// has a NUL inside.
    var path: [UInt8]? {
        guard var bytes else { return nil }
        if bytes.last == 0 { bytes.removeLast() }
        return bytes.contains(0) ? nil : bytes
    }

    static func path(_ path: [UInt8]) -> BusValue { .bytes(path + [0]) }
    static func texts(_ texts: [String]) -> BusValue { .list(texts.map { .text($0) }) }
    static func number(_ value: UInt32) -> BusValue { .unsigned(UInt64(value)) }
}

/// The types of a message, as its signature writes them.
enum BusSignature {
    /// The first complete type.
    static func first(of types: Substring) -> Substring {
        guard let letter = types.first else { return types }
        switch letter {
        case "a": return types.prefix(1 + first(of: types.dropFirst()).count)
        case "(", "{":
            var depth = 0
            for index in types.indices {
                if "({".contains(types[index]) { depth += 1 }
                if ")}".contains(types[index]) { depth -= 1 }
                if depth == 0 { return types[...index] }
            }
            return types
        default: return types.prefix(1)
        }
    }

    /// All of them.
    static func all(in types: String) -> [String] {
        var rest = types[...]
        var result: [String] = []
        while !rest.isEmpty {
            let type = first(of: rest)
            result.append(String(type))
            rest = rest.dropFirst(type.count)
        }
        return result
    }
}
