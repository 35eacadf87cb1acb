import CGrantTOML

/// A value of a TOML document, and its line.
struct TOMLValue {
    enum Kind {
        case table([(key: String, value: TOMLValue)])
        case array([TOMLValue])
        case string(String)
        case boolean(Bool)
        /// A date, with or without a time.
        case moment(ctoml_time)
        /// A number, or a time without a date.
        case other
    }

    let kind: Kind
    /// The line, counted from 1, or 0 if it is unknown.
    let line: Int

    /// A syntax error. The line is 0 where it is not known.
    struct Failure: Error {
        let line: Int
        let reason: String
    }

    /// Parses a document and returns its root, a table.
    static func read(_ bytes: [UInt8]) throws(Failure) -> TOMLValue {
        var failure = ctoml_failure()
        let document = bytes.withUnsafeBytes { bytes in
            ctoml_read(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count, &failure)
        }
        guard let document else {
            let reason = withUnsafeBytes(of: failure.text) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
            throw Failure(line: Int(failure.line), reason: reason)
        }
        defer { ctoml_end(document) }
        return TOMLValue(ctoml_root(document))
    }

    private init(_ node: OpaquePointer) {
        line = Int(ctoml_line(node))
        switch ctoml_kind_of(node) {
        case ctoml_table:
            kind = .table(
                (0..<ctoml_count(node)).map { index in
                    var count = 0
                    let key = TOMLValue.text(ctoml_key(node, index, &count), count)
                    return (key, TOMLValue(ctoml_item(node, index)))
                })
        case ctoml_array: kind = .array((0..<ctoml_count(node)).map { TOMLValue(ctoml_item(node, $0)) })
        case ctoml_string:
            var count = 0
            let start = ctoml_string_of(node, &count)
            kind = .string(TOMLValue.text(start, count))
        case ctoml_boolean: kind = .boolean(ctoml_boolean_of(node))
        case ctoml_moment:
            var time = ctoml_time()
            kind = ctoml_time_of(node, &time) ? .moment(time) : .other
        default: kind = .other
        }
    }

    /// TOML is UTF-8, which the parser has checked.
    private static func text(_ start: UnsafePointer<CChar>?, _ count: Int) -> String {
        String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
    }

    /// Quotes text as a TOML string on one line.
    static func quoted(_ text: String) -> String {
        let bytes = Array(text.utf8)
        // A byte becomes at most six characters.
        var quoted = [UInt8](repeating: 0, count: bytes.count * 6 + 2)
        let count = bytes.withUnsafeBytes { bytes in
            quoted.withUnsafeMutableBytes { quoted in
                ctoml_quote(
                    bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count,
                    quoted.baseAddress?.assumingMemoryBound(to: CChar.self), quoted.count)
            }
        }
        return String(decoding: quoted.prefix(count), as: UTF8.self)
    }
}
