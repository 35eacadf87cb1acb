/// Escapes bytes and text so that a terminal can show them.
public enum VisibleText {
    /// Escapes control characters and invalid UTF-8 as `\n`, `\x1b`, `\u{202e}`.
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
        // Escapes characters that change the direction of a line as well, so that a name cannot pose as another.
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
