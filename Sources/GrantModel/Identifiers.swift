/// The id of one grant: 128 random bits, shown as 32 lower-case hexadecimal digits. Never reused.
public struct GrantID: Hashable, Sendable, Comparable, CustomStringConvertible {
    public let high: UInt64
    public let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Makes a new id from the system's random source.
    public static func random() -> GrantID {
        var generator = SystemRandomNumberGenerator()
        return GrantID(high: generator.next(), low: generator.next())
    }

    /// Parses exactly 32 hexadecimal digits, or nil for anything else.
    public init?(_ text: some StringProtocol) {
        guard text.utf8.count == 32, text.utf8.allSatisfy({ Hexadecimal.value(of: $0) != nil }) else { return nil }
        guard let high = UInt64(text.prefix(16), radix: 16), let low = UInt64(text.suffix(16), radix: 16) else { return nil }
        self.init(high: high, low: low)
    }

    public var description: String { Hexadecimal.text(high) + Hexadecimal.text(low) }

    public static func < (left: GrantID, right: GrantID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }
}

/// Hexadecimal digits, without Foundation.
public enum Hexadecimal {
    private static let digits = Array("0123456789abcdef".utf8)

    public static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case 0x30...0x39: digit - 0x30
        case 0x61...0x66: digit - 0x61 + 10
        case 0x41...0x46: digit - 0x41 + 10
        default: nil
        }
    }

    /// Sixteen lower-case digits.
    public static func text(_ value: UInt64) -> String {
        text((0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * UInt64(truncatingIfNeeded: $0))) })
    }

    /// Two lower-case digits for each byte.
    public static func text(_ bytes: some Sequence<UInt8>) -> String {
        var result: [UInt8] = []
        for byte in bytes {
            result.append(digits[Int(truncatingIfNeeded: byte >> 4)])
            result.append(digits[Int(truncatingIfNeeded: byte & 15)])
        }
        return String(decoding: result, as: UTF8.self)
    }
}

/// A name as a Linux directory can have it: not empty, not `.` or `..`, without `/` and NUL, at most 255 bytes.
/// It need not be UTF-8.
public struct GrantName: Hashable, Sendable, CustomStringConvertible {
    public let bytes: [UInt8]

    /// Why a name was refused.
    public enum Flaw: String, Error, Sendable {
        case empty = "it is empty"
        case dots = "it is “.” or “..”"
        case slash = "it contains “/”"
        case nul = "it contains a NUL byte"
        case tooLong = "it is longer than 255 bytes"
        case control = "it contains a control character"
        case notUTF8 = "it is not UTF-8"
    }

    /// Accepts any name that a directory entry can have: what a grant gets when it takes its directory's own name.
    public init(entry bytes: [UInt8]) throws(Flaw) {
        if bytes.isEmpty { throw .empty }
        if bytes == [0x2E] || bytes == [0x2E, 0x2E] { throw .dots }
        if bytes.contains(0x2F) { throw .slash }
        if bytes.contains(0) { throw .nul }
        if bytes.count > 255 { throw .tooLong }
        self.bytes = bytes
    }

    /// Accepts a name that a person chose: UTF-8 without control characters, besides the rules of `init(entry:)`.
    public init(chosen bytes: [UInt8]) throws(Flaw) {
        try self.init(entry: bytes)
        if bytes.contains(where: { $0 < 0x20 || $0 == 0x7F }) { throw .control }
        if !Bytes.isUTF8(bytes) { throw .notUTF8 }
    }

    /// The name for people. Invalid UTF-8 is shown as U+FFFD.
    public var description: String { String(decoding: bytes, as: UTF8.self) }
    public var isUTF8: Bool { Bytes.isUTF8(bytes) }
}

/// The name of a view. It is also the source of the mount in /proc/mounts, so it is UTF-8 without control characters.
public struct ViewName: Hashable, Sendable, CustomStringConvertible {
    public let description: String

    public init(_ text: String) throws(GrantName.Flaw) {
        _ = try GrantName(chosen: Array(text.utf8))
        description = text
    }

    init(known: String) { description = known }

    // The store compares bytes, and so does the kernel. Strings compare equal that have the same characters in another composition.
    public static func == (one: ViewName, other: ViewName) -> Bool { one.description.utf8.elementsEqual(other.description.utf8) }
    public func hash(into hasher: inout Hasher) { for byte in description.utf8 { hasher.combine(byte) } }

    /// The view that `grant` uses when none is named.
    public static let standard = ViewName(known: "default")
}

public enum Bytes {
    public static func isUTF8(_ bytes: [UInt8]) -> Bool {
        String(validating: bytes, as: UTF8.self) != nil
    }
}
