import CGrantSQLite
import GrantModel
import GrantSystem

/// Parses JSON (RFC 8259) with SQLite's parser.
package final class JSONReader {
    private let database: OpaquePointer

    /// The result is nil if out of memory.
    package init?() {
        var handle: OpaquePointer?
        guard sqlite3_open_v2(":memory:", &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nil) == SQLITE_OK, let handle else {
            sqlite3_close_v2(handle)
            return nil
        }
        database = handle
    }

    deinit { sqlite3_close_v2(database) }

    /// Parses a text. The result is nil if it is not JSON, is nested too deeply, has more than
    /// `most` values, or contains a NUL.
    ///
    /// The text may come from a program that is not trusted, and a value takes a hundred times the memory of its text.
    package func read(_ text: [UInt8], most: Int = 100_000) -> JSON? {
        if Self.values(in: text) > most { return nil }
        if text.contains(0) || text.contains(part: "\\u0000".utf8) || !Bytes.isUTF8(text) { return nil }
        guard let valid = prepare("SELECT json_valid(?1)", text) else { return nil }
        defer { sqlite3_finalize(valid) }
        guard sqlite3_step(valid) == SQLITE_ROW, sqlite3_column_int(valid, 0) == 1 else { return nil }
        guard let rows = prepare("SELECT id, parent, key, type, atom FROM json_tree(?1)", text) else { return nil }
        defer { sqlite3_finalize(rows) }
        var nodes: [Int64: Node] = [:]
        var root: Node?
        while sqlite3_step(rows) == SQLITE_ROW {
            let node = Node(value(rows))
            nodes[sqlite3_column_int64(rows, 0)] = node
            if sqlite3_column_type(rows, 1) == SQLITE_NULL {
                root = node
            } else {
                nodes[sqlite3_column_int64(rows, 1)]?.children.append((string(rows, 2), node))
            }
        }
        return root?.json
    }

    /// Returns the number at `path` (`$.id`) in a valid text, digit for digit, or nil if there is
    /// none.
    package func digits(at path: StaticString, in text: [UInt8]) -> JSON? {
        guard let row = prepare("SELECT ?1 -> '\(path)', json_type(?1, '\(path)') IN ('integer', 'real')", text) else { return nil }
        defer { sqlite3_finalize(row) }
        guard sqlite3_step(row) == SQLITE_ROW, sqlite3_column_int(row, 1) == 1 else { return nil }
        return .digits(string(row, 0))
    }

    /// Returns an upper bound of the number of values, counted by their separators.
    package static func values(in text: [UInt8]) -> Int {
        var (count, isInString, isEscaped) = (1, false, false)
        for byte in text {
            if isInString {
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == UInt8(ascii: "\"") {
                    isInString = false
                }
            } else if byte == UInt8(ascii: "\"") {
                isInString = true
            } else if byte == UInt8(ascii: ",") || byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") {
                count += 1
            }
        }
        return count
    }

    private func prepare(_ sql: String, _ text: [UInt8]) -> OpaquePointer? {
        var statement: OpaquePointer?
        guard sqlite3_prepare_v2(database, sql, -1, &statement, nil) == SQLITE_OK else { return nil }
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        let result = text.withUnsafeBufferPointer { bytes in
            bytes.withMemoryRebound(to: CChar.self) {
                sqlite3_bind_text(statement, 1, $0.baseAddress, Int32(clamping: text.count), copied)
            }
        }
        if result == SQLITE_OK { return statement }
        sqlite3_finalize(statement)
        return nil
    }

    private func string(_ row: OpaquePointer, _ column: Int32) -> String {
        sqlite3_column_text(row, column).map { String(cString: $0) } ?? ""
    }

    private func value(_ row: OpaquePointer) -> JSON {
        switch string(row, 3) {
        case "true": .bool(true)
        case "false": .bool(false)
        // SQLite gives integers beyond 64 bits as real numbers.
        case "integer" where sqlite3_column_type(row, 4) == SQLITE_INTEGER: .integer(sqlite3_column_int64(row, 4))
        case "integer": .number(sqlite3_column_double(row, 4))
        case "real": .number(sqlite3_column_double(row, 4))
        case "text": .string(string(row, 4))
        case "array": .array([])
        case "object": .object([])
        default: .null
        }
    }

    /// A value whose children are still being added.
    private final class Node {
        let value: JSON
        var children: [(key: String, node: Node)] = []

        init(_ value: JSON) { self.value = value }

        /// Recurses as deeply as SQLite permits.
        var json: JSON {
            switch value {
            case .array: .array(children.map(\.node.json))
            case .object: .object(children.map { ($0.key, $0.node.json) })
            default: value
            }
        }
    }
}

extension JSON {
    /// Returns the last member of an object with this key, or nil if there is none.
    package func member(_ key: String) -> JSON? {
        guard case .object(let members) = self else { return nil }
        return members.last { $0.0 == key }?.1
    }

    package var stringValue: String? {
        guard case .string(let value) = self else { return nil }
        return value
    }
}
