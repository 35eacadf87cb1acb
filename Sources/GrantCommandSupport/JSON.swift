import GrantModel

/// A JSON value that keeps the order of its keys.
package indirect enum JSON: Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    case unsigned(UInt64)
    case number(Double)
    /// A number in the digits of the text that it was read from.
    case digits(String)
    case string(String)
    case array([JSON])
    case object([(String, JSON)])

    /// RFC 8259, on one line.
    package var text: String {
        var result = ""
        write(to: &result)
        return result
    }

    private func write(to text: inout String) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .integer(let value): text += String(value)
        case .unsigned(let value): text += String(value)
        // JSON cannot represent infinities and NaN.
        case .number(let value): text += value.isFinite ? JSON.digits(value) : "null"
        case .digits(let value): text += value
        case .string(let value): JSON.write(value, to: &text)
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .object(let members):
            text += "{"
            for (index, member) in members.enumerated() {
                if index > 0 { text += "," }
                JSON.write(member.0, to: &text)
                text += ":"
                member.1.write(to: &text)
            }
            text += "}"
        }
    }

    /// Three decimal places are enough for milliseconds.
    private static func digits(_ value: Double) -> String {
        guard value.magnitude < 1e15 else { return String(value) }
        return String((value * 1000).rounded() / 1000)
    }

    private static func write(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\t": text += "\\t"
            default:
                if scalar.value < 0x20 || scalar.value == 0x7F {
                    text += "\\u00" + Hexadecimal.text([UInt8(scalar.value)])
                } else {
                    text.unicodeScalars.append(scalar)
                }
            }
        }
        text += "\""
    }
}

extension JSON {
    /// A name or path under `key`. If it is not UTF-8, it has U+FFFD there, and all its bytes under `keyHex`.
    package static func members(_ key: String, _ bytes: [UInt8]) -> [(String, JSON)] {
        let text = JSON.string(String(decoding: bytes, as: UTF8.self))
        if Bytes.isUTF8(bytes) { return [(key, text)] }
        return [(key, text), (key + "Hex", .string(Hexadecimal.text(bytes)))]
    }

    package static func time(_ instant: Instant?) -> JSON { instant.map { .string(Timestamp.text($0)) } ?? .null }
}
