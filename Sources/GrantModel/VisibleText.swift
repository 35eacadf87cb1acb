/// Bytes and text as a terminal may show them.
public enum VisibleText {
    /// Control characters, and what is no UTF-8, become `\n`, `\x1b`, `\u{202e}`.
    public static func of(_ bytes: [UInt8]) -> String {
        var result = ""
        var rest = bytes[...]
        while let first = rest.first {
            var decoder = UTF8()
            var iterator = rest.makeIterator()
            if case .scalarValue(let scalar) = decoder.decode(&iterator) {
                result += of(scalar)
                rest = rest.dropFirst(UTF8.width(scalar))
            } else {
                result += "\\x" + Hexadecimal.text([first])
                rest = rest.dropFirst()
            }
        }
        return result
    }

    public static func of(_ text: String) -> String { text.unicodeScalars.map { of($0) }.joined() }

    /// Whether `of` leaves the character as it is.
    public static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        // Also what changes the direction of a line, so that a name cannot pose as another.
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate: false
        default: true
        }
    }

    private static func of(_ scalar: Unicode.Scalar) -> String {
        switch scalar {
        case "\n": return "\\n"
        case "\t": return "\\t"
        case "\r": return "\\r"
        default: break
        }
        if isPlain(scalar) { return String(scalar) }
        return scalar.value < 0x80 ? "\\x" + Hexadecimal.text([UInt8(scalar.value)]) : "\\u{" + String(scalar.value, radix: 16) + "}"
    }
}
