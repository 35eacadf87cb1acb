/// The rules of a grant: names below its directory that are hidden, protected, or alone visible.
///
/// A name is judged by the patterns of each list in their order, as gitignore(5) describes.
public struct GrantRules: Hashable, Sendable {
    /// Names that cannot be looked up, listed or made.
    public let hide: [RulePattern]
    /// Names that can be read and not changed, with everything below.
    public let protect: [RulePattern]
    /// Names that are visible, with everything below. If empty, all are.
    public let only: [RulePattern]

    public static let none = GrantRules()

    /// The limits of one grant's rules.
    public static let most = 4_096
    public static let mostBytes = 256 << 10

    private init() { (hide, protect, only) = ([], [], []) }

    /// Checks lists of patterns. A repeated pattern counts once.
    ///
    /// - Throws: `.usage` if patterns contradict each other, hide everything, or are too many.
    public init(hide: [RulePattern] = [], protect: [RulePattern] = [], only: [RulePattern] = []) throws(GrantError) {
        (self.hide, self.protect, self.only) = (Self.unique(hide), Self.unique(protect), Self.unique(only))
        let all = self.hide + self.protect + self.only
        if all.count > Self.most || all.reduce(0, { $0 + $1.text.count }) > Self.mostBytes {
            throw GrantError(
                .usage, "too many rules for one grant", cause: "\(Self.most) patterns and \(Self.mostBytes) bytes are the limit",
                advice: "use fewer patterns with wildcards")
        }
        try Self.requireAgreement(self.hide, self.protect, self.only)
        if let last = self.hide.lastIndex(where: \.hidesEverything), last == self.hide.count - 1 {
            throw GrantError(
                .usage, "“\(self.hide[last])” hides everything in the grant",
                advice: "revoke the grant, or name what stays visible with --only")
        }
        if !self.only.isEmpty, self.only.allSatisfy(\.isNegated) {
            throw GrantError(.usage, "--only makes nothing visible", cause: "each of its patterns begins with !", advice: "use --hide")
        }
    }

    /// Adds patterns after those of each list, so that they decide.
    public func followed(by other: GrantRules) throws(GrantError) -> GrantRules {
        try GrantRules(hide: hide + other.hide, protect: protect + other.protect, only: only + other.only)
    }

    /// Adds patterns by which a program restricts itself. They permit nothing that these rules refuse.
    ///
    /// - Throws: `.usage` for a pattern that takes others back, or that makes more visible.
    public func narrowed(by other: GrantRules) throws(GrantError) -> GrantRules {
        if let pattern = (other.hide + other.protect + other.only).first(where: \.isNegated) {
            throw GrantError(.usage, "the pattern “\(pattern)” is refused", cause: "a request can only restrict, and ! takes back")
        }
        if !only.isEmpty, !other.only.isEmpty {
            throw GrantError(.usage, "“only” is refused", cause: "it is decided already what alone is visible", advice: "use “hide”")
        }
        return try GrantRules(hide: other.hide + hide, protect: other.protect + protect, only: only + other.only)
    }

    public var isEmpty: Bool { hide.isEmpty && protect.isEmpty && only.isEmpty }

    private static func unique(_ patterns: [RulePattern]) -> [RulePattern] {
        // The last one of equal patterns decides.
        var seen = Set<RulePattern>()
        return patterns.reversed().filter { seen.insert($0).inserted }.reversed()
    }

    /// Throws if one pattern is in two lists, or is taken back by another one of its list.
    private static func requireAgreement(_ lists: [RulePattern]...) throws(GrantError) {
        var seen: [[UInt8]: (pattern: RulePattern, list: Int)] = [:]
        for (index, list) in lists.enumerated() {
            for pattern in list {
                guard let other = seen.updateValue((pattern, index), forKey: pattern.bare) else { continue }
                // A file can be protected or not, and be among the visible ones.
                if other.list == 1, index == 2, !pattern.isNegated { continue }
                if other.list == 0, other.pattern.isNegated, index == 1 { continue }
                let names = ["--hide", "--protect", "--only"]
                throw GrantError(
                    .usage, "rules contradict each other",
                    cause: "\(names[other.list]) “\(other.pattern)” and \(names[index]) “\(pattern)”", advice: "leave one of them out")
            }
        }
    }
}

// The form in which a store keeps the rules: for each pattern a letter, its text, and a zero byte.
extension GrantRules {
    private static let letters = [UInt8(ascii: "h"), UInt8(ascii: "p"), UInt8(ascii: "o")]

    public var encoded: [UInt8] {
        zip(Self.letters, [hide, protect, only]).flatMap { letter, patterns in patterns.flatMap { [letter] + $0.text + [0] } }
    }

    public init(encoded bytes: [UInt8]) throws(GrantError) {
        var lists: [[RulePattern]] = [[], [], []]
        var rest = bytes[...]
        while let letter = rest.popFirst() {
            guard let list = Self.letters.firstIndex(of: letter), let end = rest.firstIndex(of: 0) else {
                throw GrantError(.storeDamaged, "a grant's rules make no sense")
            }
            lists[list].append(try RulePattern(Array(rest[..<end])))
            rest = rest[(end + 1)...]
        }
        try self.init(hide: lists[0], protect: lists[1], only: lists[2])
    }
}
