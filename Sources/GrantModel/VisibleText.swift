/// Escapes bytes and text so that a terminal can show them.
public enum VisibleText {
    /// Escapes invisible characters and invalid UTF-8, as `\n`, `\x1b`, `\u{202e}`.
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

    /// As `of`, for names, of which two that differ must not look alike: escapes blanks at the ends and after another blank as well,
    /// and doubles backslashes.
    public static func name(_ bytes: [UInt8]) -> String { name(escaped: of(bytes.flatMap { $0 == 0x5C ? [$0, $0] : [$0] })) }

    public static func name(_ text: String) -> String { name(Array(text.utf8)) }

    private static func name(escaped text: String) -> String {
        let scalars = Array(text.unicodeScalars)
        return scalars.indices.map { index in
            let isOdd = index == 0 || index == scalars.count - 1 || scalars[index - 1] == " "
            return scalars[index] == " " && isOdd ? "\\x20" : String(scalars[index])
        }.joined()
    }

    /// The first `most` scalars: a letter may have a thousand combining marks.
    public static func cut(_ text: String, to most: Int) -> String { String(String.UnicodeScalarView(text.unicodeScalars.prefix(most))) }

    /// Whether `of` leaves the character as it is.
    public static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        // Escapes characters that change the direction of a line as well, so that a name cannot pose as another.
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate: false
        case .spaceSeparator: scalar == " "
        // Fillers, joiners and selectors of variants are not format characters but are invisible,
        // and so is a Braille pattern without dots.
        default: !scalar.properties.isDefaultIgnorableCodePoint && scalar != "\u{2800}"
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
