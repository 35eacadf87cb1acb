/// A pattern of names below a granted directory, with the meaning of gitignore(5).
public struct RulePattern: Hashable, Sendable {
    /// The pattern as it was written.
    public let text: [UInt8]

    /// One component of the pattern's path.
    enum Component: Hashable, Sendable {
        /// `**`: any number of directories, or everything if it is last.
        case anyDepth
        case name(NamePattern)
    }

    let components: [Component]
    /// Whether it begins with `!`: it takes back what earlier patterns match.
    let isNegated: Bool
    /// Whether it ends with a slash: it matches directories only.
    let isForDirectories: Bool
    /// Whether it matches at every depth, because it has no slash before its end.
    let floats: Bool

    /// The limit of a pattern's length: that of a path.
    public static let longest = 4_095

    /// Parses a pattern.
    ///
    /// - Throws: `.usage` if it can never match, or if gitignore(5) takes it for a comment.
    public init(_ text: [UInt8]) throws(GrantError) {
        self.text = text
        if text.isEmpty { throw Self.refusal(text, "it is empty") }
        if text.count > Self.longest { throw Self.refusal(text, "it is longer than \(Self.longest) bytes") }
        if text.contains(0) { throw Self.refusal(text, "it contains a zero byte") }
        if text[0] == UInt8(ascii: "#") {
            throw Self.refusal(text, "it is a comment in gitignore(5)", advice: "write \\# for a name with #")
        }
        let escapes = text.dropLast().reversed().prefix { $0 == UInt8(ascii: "\\") }.count
        if text.last == UInt8(ascii: " "), escapes.isMultiple(of: 2) {
            throw Self.refusal(text, "it ends with a space", advice: "write “\\ ” if the name does")
        }
        var rest = text[...]
        isNegated = rest.first == UInt8(ascii: "!")
        if isNegated { rest = rest.dropFirst() }
        isForDirectories = rest.last == Self.slash
        if isForDirectories { rest = rest.dropLast() }
        floats = !rest.contains(Self.slash)
        if rest.first == Self.slash { rest = rest.dropFirst() }
        if rest.isEmpty { throw Self.refusal(text, "it names nothing") }
        var parser = PatternParser(rest)
        var components: [Component] = []
        do throws(PatternParser.Flaw) {
            while let component = try parser.next(isAlone: floats) { components.append(component) }
        } catch {
            throw Self.refusal(text, error.description)
        }
        self.components = components
    }

    /// A pattern that matches one path below the granted directory.
    package init(exactly path: [UInt8], isNegated: Bool = false) throws(GrantError) {
        let special = Set("\\*?[ ".utf8)
        let escaped = path.flatMap { special.contains($0) ? [UInt8(ascii: "\\"), $0] : [$0] }
        try self.init((isNegated ? [UInt8(ascii: "!")] : []) + [Self.slash] + escaped)
    }

    private static let slash = UInt8(ascii: "/")

    private static func refusal(_ text: [UInt8], _ cause: String, advice: String? = nil) -> GrantError {
        let shown = VisibleText.cut(VisibleText.of(text), to: 100)
        return GrantError(.usage, "invalid pattern “\(shown)”", cause: cause, advice: advice)
    }

    /// Whether it can begin to match in any directory.
    var matchesAnywhere: Bool { floats || components.first == .anyDepth }

    /// The pattern without `!`.
    var bare: [UInt8] { isNegated ? Array(text.dropFirst()) : text }

    /// Returns a pattern for the directory that the components before this one match. It has the others.
    func rest(from component: Int) throws(GrantError) -> RulePattern {
        var path = bare[...]
        if path.first == Self.slash { path = path.dropFirst() }
        var parser = PatternParser(isForDirectories ? path.dropLast() : path)
        do throws(PatternParser.Flaw) {
            for _ in 0..<component { _ = try parser.next(isAlone: floats) }
        } catch {
            throw Self.refusal(text, error.description)
        }
        return try RulePattern((isNegated ? [UInt8(ascii: "!")] : []) + [Self.slash] + path[parser.place...])
    }

    var hidesEverything: Bool { matchesEverything && !isNegated }

    /// Whether it matches every name at the top of the granted directory.
    var matchesEverything: Bool {
        !isForDirectories && components.dropLast().allSatisfy { $0 == .anyDepth } && matchesAnyName
    }

    /// Whether none of its components names anything.
    var matchesAnyName: Bool {
        components.allSatisfy { component in
            switch component {
            case .anyDepth: true
            case .name(let name): name.matchesEverything
            }
        }
    }
}

extension RulePattern: CustomStringConvertible {
    public var description: String { VisibleText.of(text) }
}

/// A pattern of one name.
struct NamePattern: Hashable, Sendable {
    /// A byte, or one of the values below. From `firstSet` on, an index into `sets`.
    var tokens: [UInt32] = []
    var sets: [ByteSet] = []

    static let anyByte: UInt32 = 256
    static let anyBytes: UInt32 = 257
    static let firstSet: UInt32 = 258

    var matchesEverything: Bool { tokens == [Self.anyBytes] }
}

/// A set of bytes.
struct ByteSet: Hashable, Sendable {
    private var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

    mutating func insert(_ byte: UInt8) {
        let bit: UInt64 = 1 << UInt64(truncatingIfNeeded: byte & 63)
        switch byte >> 6 {
        case 0: words.0 |= bit
        case 1: words.1 |= bit
        case 2: words.2 |= bit
        default: words.3 |= bit
        }
    }

    func contains(_ byte: UInt8) -> Bool {
        let word =
            switch byte >> 6 {
            case 0: words.0
            case 1: words.1
            case 2: words.2
            default: words.3
            }
        return word & 1 << UInt64(truncatingIfNeeded: byte & 63) != 0
    }

    mutating func invert() { words = (~words.0, ~words.1, ~words.2, ~words.3) }

    static func == (left: ByteSet, right: ByteSet) -> Bool { left.words == right.words }

    func hash(into hasher: inout Hasher) {
        hasher.combine(words.0)
        hasher.combine(words.1)
        hasher.combine(words.2)
        hasher.combine(words.3)
    }
}
