import GrantModel

/// Escapes untrusted text for a terminal, as a stream: newlines and tabs stay, every other control character is escaped.
///
/// A program's output that a person reviews could hide itself from a terminal, or control it.
struct VisibleLines {
    /// Longer lines are returned in parts, to bound the memory.
    private static let longest = 64 << 10
    private static let (lineEnd, tab) = (UInt8(ascii: "\n"), UInt8(ascii: "\t"))

    private var rest: [UInt8] = []

    /// Returns the lines that are complete so far.
    mutating func add(_ bytes: some Sequence<UInt8>) -> String {
        rest += bytes
        let end = rest.lastIndex(of: Self.lineEnd).map { $0 + 1 } ?? (rest.count > Self.longest ? rest.count : 0)
        defer { rest.removeFirst(end) }
        return Self.visible(rest[..<end])
    }

    /// Returns the rest.
    mutating func end() -> String {
        defer { rest = [] }
        return Self.visible(rest[...])
    }

    private static func visible(_ bytes: ArraySlice<UInt8>) -> String {
        bytes.split(separator: lineEnd, omittingEmptySubsequences: false).map { line in
            line.split(separator: tab, omittingEmptySubsequences: false).map { VisibleText.of(Array($0)) }.joined(separator: "\t")
        }.joined(separator: "\n")
    }
}
