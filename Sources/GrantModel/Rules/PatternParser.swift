/// Parses the path of a pattern as git does (wildmatch.c).
struct PatternParser {
    enum Flaw: Error, CustomStringConvertible {
        case emptyName
        case dots
        case endsWithBackslash
        case openBracket
        case unknownClass

        var description: String {
            switch self {
            case .emptyName: "it contains an empty name"
            case .dots: "names are never . or .."
            case .endsWithBackslash: "it ends with a backslash"
            case .openBracket: "a bracket is not closed"
            case .unknownClass: "it names an unknown class of characters"
            }
        }
    }

    private var rest: ArraySlice<UInt8>
    private var hasEnded = false
    /// Where the next component begins.
    var place: Int { rest.startIndex }

    init(_ text: ArraySlice<UInt8>) { rest = text }

    /// Returns the next component, or nil at the end.
    ///
    /// - Parameter isAlone: Whether the pattern has one component. `**` then has no special meaning.
    mutating func next(isAlone: Bool) throws(Flaw) -> RulePattern.Component? {
        if hasEnded { return nil }
        if !isAlone, let length = lengthOfStars {
            rest = rest.dropFirst(length)
            skipSlash()
            return .anyDepth
        }
        var name = NamePattern()
        while let byte = rest.first, byte != UInt8(ascii: "/") {
            rest = rest.dropFirst()
            switch byte {
            case UInt8(ascii: "*"): if name.tokens.last != NamePattern.anyBytes { name.tokens.append(NamePattern.anyBytes) }
            case UInt8(ascii: "?"): name.tokens.append(NamePattern.anyByte)
            case UInt8(ascii: "["):
                name.tokens.append(NamePattern.firstSet + UInt32(truncatingIfNeeded: name.sets.count))
                name.sets.append(try takeSet())
            case UInt8(ascii: "\\"):
                guard let escaped = rest.first else { throw .endsWithBackslash }
                // An escaped slash separates as well.
                if escaped == UInt8(ascii: "/") { continue }
                rest = rest.dropFirst()
                name.tokens.append(UInt32(truncatingIfNeeded: escaped))
            default: name.tokens.append(UInt32(truncatingIfNeeded: byte))
            }
        }
        skipSlash()
        if name.tokens.isEmpty { throw .emptyName }
        let dot = UInt32(truncatingIfNeeded: UInt8(ascii: "."))
        if name.tokens == [dot] || name.tokens == [dot, dot] { throw .dots }
        return .name(name)
    }

    /// The length of two or more stars that are a component of their own. Otherwise nil.
    private var lengthOfStars: Int? {
        let stars = rest.prefix { $0 == UInt8(ascii: "*") }
        let after = rest.dropFirst(stars.count)
        let ends = after.isEmpty || after.first == UInt8(ascii: "/") || after.starts(with: [UInt8(ascii: "\\"), UInt8(ascii: "/")])
        return stars.count > 1 && ends ? stars.count : nil
    }

    private mutating func skipSlash() {
        if rest.first == UInt8(ascii: "\\") { rest = rest.dropFirst() }
        if rest.isEmpty { hasEnded = true } else { rest = rest.dropFirst() }
    }

    /// Takes a bracket expression, after its opening bracket.
    private mutating func takeSet() throws(Flaw) -> ByteSet {
        var set = ByteSet()
        var isNegated = false
        if let byte = rest.first, byte == UInt8(ascii: "!") || byte == UInt8(ascii: "^") {
            isNegated = true
            rest = rest.dropFirst()
        }
        var previous: UInt8?
        // A bracket that comes first is a member.
        var isFirst = true
        while true {
            guard let byte = rest.popFirst() else { throw .openBracket }
            if byte == UInt8(ascii: "]"), !isFirst { break }
            isFirst = false
            switch byte {
            case UInt8(ascii: "\\"):
                guard let escaped = rest.popFirst() else { throw .openBracket }
                set.insert(escaped)
                previous = escaped
            case UInt8(ascii: "-"):
                guard let low = previous, let end = rest.first, end != UInt8(ascii: "]") else {
                    set.insert(byte)
                    previous = byte
                    continue
                }
                var high = end
                rest = rest.dropFirst()
                if high == UInt8(ascii: "\\") {
                    guard let escaped = rest.popFirst() else { throw .openBracket }
                    high = escaped
                }
                if low <= high { for member in low...high { set.insert(member) } }
                previous = nil
            case UInt8(ascii: "[") where rest.first == UInt8(ascii: ":"):
                guard try takeClass(into: &set) else {
                    set.insert(byte)
                    previous = byte
                    continue
                }
                previous = nil
            default:
                set.insert(byte)
                previous = byte
            }
        }
        if isNegated { set.invert() }
        return set
    }

    /// Takes `:name:]` and adds the class's members. Returns false if it is no class.
    private mutating func takeClass(into set: inout ByteSet) throws(Flaw) -> Bool {
        let inside = rest.dropFirst()
        guard let end = inside.firstIndex(of: UInt8(ascii: "]")) else { throw .openBracket }
        guard end > inside.startIndex, inside[end - 1] == UInt8(ascii: ":") else { return false }
        let name = String(decoding: inside[inside.startIndex..<end - 1], as: UTF8.self)
        guard let isMember = Self.classes[name] else { throw .unknownClass }
        for byte in 0..<UInt8(128) where isMember(byte) { set.insert(byte) }
        rest = rest[(end + 1)...]
        return true
    }

    private static let classes: [String: @Sendable (UInt8) -> Bool] = [
        "alnum": { isAlpha($0) || isDigit($0) },
        "alpha": { isAlpha($0) },
        "blank": { $0 == 0x20 || $0 == 0x09 },
        "cntrl": { $0 < 0x20 || $0 == 0x7F },
        "digit": { isDigit($0) },
        "graph": { isGraph($0) },
        "lower": { isLower($0) },
        "print": { isGraph($0) || $0 == 0x20 },
        "punct": { isGraph($0) && !isAlpha($0) && !isDigit($0) },
        "space": { $0 == 0x20 || (0x09...0x0D).contains($0) },
        "upper": { isUpper($0) },
        "xdigit": { isDigit($0) || (0x41...0x46).contains($0 & 0xDF) },
    ]

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
    private static func isLower(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte) }
    private static func isUpper(_ byte: UInt8) -> Bool { (0x41...0x5A).contains(byte) }
    private static func isAlpha(_ byte: UInt8) -> Bool { isLower(byte) || isUpper(byte) }
    private static func isGraph(_ byte: UInt8) -> Bool { (0x21...0x7E).contains(byte) }
}
