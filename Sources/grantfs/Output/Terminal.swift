import Glibc
import GrantModel

/// Where output goes.
enum Terminal {
    static let standardOutput: Int32 = 1
    static let standardError: Int32 = 2

    /// Writes to stdout. `.system` when that fails: a script must not take half a document for a whole one.
    static func print(_ text: String, terminator: String = "\n") throws(GrantError) {
        if !write(text + terminator, to: standardOutput) {
            throw GrantError(.system, "the output cannot be written", cause: String(cString: strerror(errno)))
        }
    }

    /// A line for people, on stderr.
    static func note(_ text: String) { _ = write("grantfs: \(visible(text))\n", to: standardError) }

    static func report(_ error: GrantError) { note(error.description) }

    /// Whether colour may be used there: a terminal, and nobody asked for none (https://no-color.org).
    static func hasColour(_ descriptor: Int32) -> Bool {
        guard isatty(descriptor) == 1, getenv("NO_COLOR") == nil else { return false }
        return getenv("TERM").map { String(cString: $0) != "dumb" } ?? false
    }

    /// Bytes as a terminal may show them: control characters, and what is no UTF-8, as `\n`, `\x1b`.
    static func visible(_ bytes: [UInt8]) -> String {
        var result = ""
        var rest = bytes[...]
        while let first = rest.first {
            var decoder = UTF8()
            var iterator = rest.makeIterator()
            if case .scalarValue(let scalar) = decoder.decode(&iterator) {
                result += visible(scalar)
                rest = rest.dropFirst(UTF8.width(scalar))
            } else {
                result += "\\x" + Hexadecimal.text([first])
                rest = rest.dropFirst()
            }
        }
        return result
    }

    static func visible(_ text: String) -> String { text.unicodeScalars.map { visible($0) }.joined() }

    private static func visible(_ scalar: Unicode.Scalar) -> String {
        switch scalar {
        case "\n": return "\\n"
        case "\t": return "\\t"
        case "\r": return "\\r"
        default: break
        }
        switch scalar.properties.generalCategory {
        // Also what changes the direction of a line, so that a name cannot pose as another.
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate:
            return scalar.value < 0x80 ? "\\x" + Hexadecimal.text([UInt8(scalar.value)]) : "\\u{" + String(scalar.value, radix: 16) + "}"
        default: return String(scalar)
        }
    }

    private static func write(_ text: String, to descriptor: Int32) -> Bool {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 {
                if errno == EINTR { continue }
                return false
            }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
