import GrantModel

/// The administrator's policy on grants: which users may grant which directories to which views,
/// and which directories no user may grant. It has the names of users, groups and directories as
/// they were written. The caller looks them up on this machine.
public struct GrantPolicy: Sendable {
    public enum Subject: Sendable, Hashable {
        case everybody
        case user(String)
        case group(String)
    }

    /// A directory with everything in it.
    public struct Directory: Sendable {
        /// Absolute, or relative to the home of the user who grants.
        public let path: [UInt8]
        /// Whether the path is relative to that home.
        public let isInHome: Bool
        /// Whether only the contents of the directory are meant, not the directory itself: it was
        /// written with `/*` at its end.
        public let isBelowAlone: Bool
        /// As it was written.
        public let text: String
        /// The location: `FILE:LINE`.
        public let place: String
    }

    /// A view's name, or a prefix of names if it ends in `*`.
    public struct Views: Sendable {
        let text: String

        public func contains(_ view: ViewName) -> Bool {
            text.hasSuffix("*") ? view.description.utf8.starts(with: text.dropLast().utf8) : view.description == text
        }
    }

    /// A rule that allows users to grant directories to views.
    public struct Rule: Sendable {
        public let who: [Subject]
        public let directories: [Directory]
        /// nil: every view.
        public let views: [Views]?
        /// The most access that may be granted.
        public let access: Access
        public let place: String

        public func names(_ view: ViewName) -> Bool { views?.contains { $0.contains(view) } ?? true }
    }

    /// Users, beside root, who may revoke grants of some views in root's store.
    public struct Revokers: Sendable {
        public let who: [Subject]
        public let views: [Views]
        public let place: String

        public func names(_ view: ViewName) -> Bool { views.contains { $0.contains(view) } }
    }

    public private(set) var revokers: [Revokers] = []
    /// Directories that no user may grant.
    public private(set) var never: [Directory] = []
    public private(set) var rules: [Rule] = []
    /// The files that were read.
    public private(set) var files: [String] = []

    /// Why `[[allow]]` and `[[revoke]]` tables of the files are not used, each with its line. They allow nothing.
    public private(set) var flaws: [GrantError] = []

    /// Makes a policy that lets only root grant anything.
    public init() {}

    /// Parses a file and adds its rules. Throws `.invalidFile`, with the line, for invalid TOML, an
    /// unknown key, or an invalid value.
    ///
    /// - Parameters:
    ///   - file: the file's name in messages.
    ///   - leavesOut: whether an invalid `[[allow]]` or `[[revoke]]` is omitted and reported in
    ///     `flaws`. An invalid `never` is always an error, because without it more would be
    ///     allowed.
    public mutating func read(_ bytes: [UInt8], file: String, leavesOut: Bool = false) throws(GrantError) {
        let reader = GrantPolicyReader(file: file)
        var flaws: [GrantError] = []
        for (key, value) in try reader.items(of: bytes) {
            switch key {
            case "never": never += try reader.list(value, key) { value throws(GrantError) in try reader.directory(value, key) }
            case "allow":
                rules += try reader.list(value, key, example: "[[allow]]") { value throws(GrantError) in
                    try GrantPolicy.used(leavesOut, &flaws) { () throws(GrantError) in try reader.rule(value) }
                }.compactMap(\.self)
            case "revoke":
                revokers += try reader.list(value, key, example: "[[revoke]]") { value throws(GrantError) in
                    try GrantPolicy.used(leavesOut, &flaws) { () throws(GrantError) in try reader.revokers(value) }
                }.compactMap(\.self)
            default: throw reader.unknown(key, value, among: ["never", "allow", "revoke"])
            }
        }
        files.append(file)
        self.flaws += flaws
    }

    /// Returns nil for a table that is omitted because of a flaw.
    private static func used<Table>(
        _ leavesOut: Bool, _ flaws: inout [GrantError], _ table: () throws(GrantError) -> Table
    ) throws(GrantError) -> Table? {
        do throws(GrantError) {
            return try table()
        } catch {
            guard leavesOut else { throw error }
            flaws.append(error)
            return nil
        }
    }
}

/// Parses one document.
private struct GrantPolicyReader: TOMLReading {
    let file: String

    private static let keys = ["who", "directories", "views", "access"]

    func rule(_ value: TOMLValue) throws(GrantError) -> GrantPolicy.Rule {
        guard case .table(let items) = value.kind else { throw wrong(value, "a rule is a table", advice: "[[allow]]") }
        var (who, directories): ([GrantPolicy.Subject], [GrantPolicy.Directory]) = ([], [])
        var views: [GrantPolicy.Views]?
        var access = Access.readWrite
        for (key, item) in items {
            switch key {
            case "who": who = try list(item, key) { value throws(GrantError) in try subject(value) }
            case "directories": directories = try list(item, key) { value throws(GrantError) in try directory(value, key) }
            case "views": views = try list(item, key) { value throws(GrantError) in try self.views(value) }
            case "access": access = try self.access(item, key)
            default: throw unknown(key, item, among: GrantPolicyReader.keys)
            }
        }
        if who.isEmpty { throw wrong(value, "the rule names no users who may grant", advice: "who = [\"ann\", \"@staff\"], or [\"*\"]") }
        if directories.isEmpty {
            throw wrong(value, "the rule names no directories that may be granted", advice: "directories = [\"~/*\", \"/srv/projects\"]")
        }
        return GrantPolicy.Rule(who: who, directories: directories, views: views, access: access, place: "\(file):\(value.line)")
    }

    func revokers(_ value: TOMLValue) throws(GrantError) -> GrantPolicy.Revokers {
        guard case .table(let items) = value.kind else { throw wrong(value, "a rule is a table", advice: "[[revoke]]") }
        var (who, views): ([GrantPolicy.Subject], [GrantPolicy.Views]) = ([], [])
        for (key, item) in items {
            switch key {
            case "who": who = try list(item, key) { value throws(GrantError) in try subject(value) }
            case "views": views = try list(item, key) { value throws(GrantError) in try self.views(value) }
            default: throw unknown(key, item, among: ["who", "views"])
            }
        }
        if who.isEmpty { throw wrong(value, "the rule names no users who may revoke", advice: "who = [\"@operators\"]") }
        if views.isEmpty { throw wrong(value, "the rule does not say in which views", advice: "views = [\"ci\"], or [\"*\"]") }
        return GrantPolicy.Revokers(who: who, views: views, place: "\(file):\(value.line)")
    }

    private func subject(_ value: TOMLValue) throws(GrantError) -> GrantPolicy.Subject {
        let text = try text(value, "who")
        if text == "*" { return .everybody }
        let isGroup = text.hasPrefix("@")
        let name = isGroup ? String(text.dropFirst()) : text
        // Characters that no user database has in a name. A star is not a pattern here.
        if name.isEmpty || name.contains(where: { "@*:/ ".contains($0) }) || name.utf8.contains(0) {
            throw wrong(value, "“\(text)” is neither a user nor a group", advice: "\"ann\", \"@staff\", or \"*\" for all users")
        }
        return isGroup ? .group(name) : .user(name)
    }

    func directory(_ value: TOMLValue, _ key: String) throws(GrantError) -> GrantPolicy.Directory {
        let text = try text(value, key)
        var bytes = Array(text.utf8)
        if bytes.contains(0) { throw wrong(value, "a path is wrong", cause: "it contains a NUL byte") }
        let isBelowAlone = bytes.suffix(2).elementsEqual("/*".utf8)
        if isBelowAlone { bytes.removeLast(2) }
        let isInHome = bytes.first == 0x7E && (bytes.count == 1 || bytes[1] == 0x2F)
        guard isInHome || bytes.first == 0x2F || (isBelowAlone && bytes.isEmpty) else {
            throw wrong(value, "the path “\(text)” is not absolute", advice: "/…, or ~/… for the home of the user who grants")
        }
        let names = (isInHome ? Array(bytes.dropFirst()) : bytes).split(separator: 0x2F)
        if names.contains(where: { $0.elementsEqual("..".utf8) || $0.elementsEqual(".".utf8) || $0.contains(0x2A) }) {
            throw wrong(value, "the path “\(text)” is wrong", cause: "“.”, “..” and “*” stand for nothing in it but “*” alone at its end")
        }
        let path = names.flatMap { [0x2F] + $0 }
        return GrantPolicy.Directory(
            path: path.isEmpty && !isInHome ? [0x2F] : path, isInHome: isInHome, isBelowAlone: isBelowAlone, text: text,
            place: "\(file):\(value.line)")
    }

    private func views(_ value: TOMLValue) throws(GrantError) -> GrantPolicy.Views {
        let text = try text(value, "views")
        let name = text.hasSuffix("*") ? String(text.dropLast()) : text
        if text == "*" { return GrantPolicy.Views(text: text) }
        do {
            return GrantPolicy.Views(text: try ViewName(name).description + (text.hasSuffix("*") ? "*" : ""))
        } catch {
            throw wrong(value, "invalid view name “\(text)”", cause: error.rawValue)
        }
    }
}
