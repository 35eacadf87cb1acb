import GrantAdministration
import GrantCommandSupport
import GrantFiles
import GrantModel

/// What a program asks for: a directory, or more time for one.
struct MCPRequest: Hashable {
    /// Absolute, and without `.` and `..`.
    var path: [UInt8]
    var access: Access
    /// As it was given: `2h`. It begins when the grant is made. nil: until the session ends.
    var duration: String?
    /// The program's own words.
    var reason: String
    /// By these the program restricts itself.
    var rules: GrantRules
    /// The grant that is to last longer, if it is not a new one.
    var extended: GrantID?

    /// When a grant that is made now would end.
    var expires: Instant? {
        get throws(GrantError) { try duration.map { (text) throws(GrantError) in try Expiry.after(text, now: GrantAdministrator.now) } }
    }
}

/// The arguments of a tool.
struct MCPArguments {
    private let json: JSON

    init(_ json: JSON) { self.json = json }

    func path() throws(GrantError) -> [UInt8] {
        guard let word = json.member("path")?.stringValue, !word.isEmpty, word.utf8.count <= 4096 else {
            throw GrantError(.usage, "“path” is missing, or no text")
        }
        return Array(word.utf8)
    }

    /// Returns an absolute path. `~/` is the home directory.
    func absolutePath() throws(GrantError) -> [UInt8] {
        let word = Self.expanded(try path())
        guard word.first == 0x2F else { throw GrantError(.usage, "“path” is not absolute", advice: "/… or ~/…") }
        return CanonicalPath.plain(word)
    }

    static func expanded(_ word: [UInt8]) -> [UInt8] {
        word == [0x7E] || word.starts(with: [0x7E, 0x2F]) ? SandboxProfiles.home + word.dropFirst() : word
    }

    func access() throws(GrantError) -> Access? {
        guard let given = json.member("access") else { return nil }
        guard let access = given.stringValue.flatMap({ Access(word: $0) }) else {
            throw GrantError(.usage, "“access” is read-only or read-write")
        }
        return access
    }

    /// Returns a time span that makes sense now.
    func duration() throws(GrantError) -> String? {
        guard let given = json.member("duration") else { return nil }
        guard let text = given.stringValue else { throw GrantError(.usage, "“duration” is text", advice: "30m, 2h, 7d") }
        _ = try Expiry.after(text, now: GrantAdministrator.now)
        return text
    }

    func reason() throws(GrantError) -> String {
        guard let given = json.member("reason") else { return "" }
        guard let text = given.stringValue else { throw GrantError(.usage, "“reason” has to be text") }
        return text
    }

    /// Returns the rules by which the program restricts itself.
    func rules() throws(GrantError) -> GrantRules {
        var lists: [[RulePattern]] = []
        for name in ["hide", "protect", "only"] {
            guard let given = json.member(name) else {
                lists.append([])
                continue
            }
            guard case .array(let items) = given, items.count <= GrantRules.most else {
                throw GrantError(.usage, "“\(name)” is a list of at most \(GrantRules.most) patterns")
            }
            var patterns: [RulePattern] = []
            for item in items {
                guard let text = item.stringValue else { throw GrantError(.usage, "a pattern of “\(name)” is no text") }
                patterns.append(try RulePattern(Array(text.utf8)))
            }
            lists.append(patterns)
        }
        return try GrantRules(hide: lists[0], protect: lists[1], only: lists[2])
    }
}
