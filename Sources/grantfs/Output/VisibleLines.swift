import GrantModel

/// A stranger's lines as a terminal may show them, as they come: ends of lines and tabs stay, every other control character is written out.
///
/// What a program has written and a person reviews may be made to hide itself from a terminal, or to work it.
struct VisibleLines {
    /// A line that is longer is given in parts, so that it takes no more memory.
    private static let longest = 64 << 10
    private static let (lineEnd, tab) = (UInt8(ascii: "\n"), UInt8(ascii: "\t"))

    private var rest: [UInt8] = []

    /// What can be shown by now.
    mutating func add(_ bytes: some Sequence<UInt8>) -> String {
        rest += bytes
        let end = rest.lastIndex(of: Self.lineEnd).map { $0 + 1 } ?? (rest.count > Self.longest ? rest.count : 0)
        defer { rest.removeFirst(end) }
        return Self.visible(rest[..<end])
    }

    /// What is left.
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
