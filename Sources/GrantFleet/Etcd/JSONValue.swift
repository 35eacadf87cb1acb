import CGrantFleet
import Glibc
import GrantModel

/// A JSON value, parsed and written by jansson.
public indirect enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// Parses JSON. `.invalidFile` with the reason as the cause.
    public init(text: [UInt8]) throws(GrantError) {
        var reason = [CChar](repeating: 0, count: 256)
        let parsed = text.withUnsafeBytes { bytes in
            cfleet_parse(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count, &reason, reason.count)
        }
        guard let parsed else { throw GrantError(.invalidFile, "it is not JSON", cause: Self.text(reason)) }
        defer { cfleet_free(parsed) }
        self = JSONValue(parsed)
    }

    private init(_ value: UnsafeMutableRawPointer) {
        switch cfleet_kind(value) {
        case CFLEET_BOOL: self = .bool(cfleet_is_true(value))
        case CFLEET_INTEGER: self = .integer(cfleet_integer(value))
        case CFLEET_NUMBER: self = .number(cfleet_number(value))
        case CFLEET_STRING:
            var length = 0
            let bytes = UnsafeRawBufferPointer(start: cfleet_string(value, &length), count: length)
            self = .string(String(decoding: bytes, as: UTF8.self))
        case CFLEET_ARRAY: self = .array((0..<cfleet_count(value)).compactMap { cfleet_item(value, $0).map { JSONValue($0) } })
        case CFLEET_OBJECT:
            var members: [String: JSONValue] = [:]
            var place = cfleet_first(value)
            while let here = place {
                if let key = cfleet_key(here), let member = cfleet_member(here) { members[String(cString: key)] = JSONValue(member) }
                place = cfleet_next(value, here)
            }
            self = .object(members)
        default: self = .null
        }
    }

    /// RFC 8259, on one line, with sorted keys. It is empty if out of memory.
    public var text: [UInt8] {
        guard let value = made() else { return [] }
        defer { cfleet_free(value) }
        guard let text = cfleet_text(value) else { return [] }
        defer { free(text) }
        return Array(UnsafeRawBufferPointer(start: text, count: strlen(text)))
    }

    private func made() -> UnsafeMutableRawPointer? {
        switch self {
        case .null: return cfleet_make(CFLEET_NULL, false, 0, 0, nil, 0)
        case .bool(let value): return cfleet_make(CFLEET_BOOL, value, 0, 0, nil, 0)
        case .integer(let value): return cfleet_make(CFLEET_INTEGER, false, value, 0, nil, 0)
        case .number(let value): return cfleet_make(CFLEET_NUMBER, false, 0, value, nil, 0)
        case .string(let value):
            return Array(value.utf8).withUnsafeBytes { bytes in
                cfleet_make(CFLEET_STRING, false, 0, 0, bytes.baseAddress?.assumingMemoryBound(to: CChar.self) ?? Self.empty, bytes.count)
            }
        case .array(let values):
            guard let array = cfleet_make(CFLEET_ARRAY, false, 0, 0, nil, 0) else { return nil }
            for value in values { if let item = value.made() { _ = cfleet_append(array, item) } }
            return array
        case .object(let members):
            guard let object = cfleet_make(CFLEET_OBJECT, false, 0, 0, nil, 0) else { return nil }
            for (key, value) in members { if let member = value.made() { _ = cfleet_set(object, key, member) } }
            return object
        }
    }

    nonisolated(unsafe) private static let empty = UnsafePointer(strdup(""))

    static func text(_ buffer: [CChar]) -> String {
        String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

extension JSONValue {
    /// A member of an object, or nil for other values.
    public subscript(_ key: String) -> JSONValue? {
        if case .object(let members) = self { return members[key] }
        return nil
    }

    public var string: String? { if case .string(let text) = self { text } else { nil } }
    public var items: [JSONValue]? { if case .array(let values) = self { values } else { nil } }
    public var isTrue: Bool { self == .bool(true) }

    /// The value of a number, or of a number in a string: etcd's gateway writes 64-bit numbers as strings.
    public var integer: Int64? {
        switch self {
        case .integer(let value): value
        case .string(let text): Int64(text)
        default: nil
        }
    }
}
