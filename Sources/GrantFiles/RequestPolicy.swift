import GrantModel

/// A person's decisions, made in advance, about requests of programs for directories.
public struct RequestPolicy: Sendable {
    public enum Verdict: Sendable {
        case allowed, denied, toBeAsked
    }

    private var allowed: [SandboxProfile.Grant] = []
    private var denied: [[UInt8]] = []
    /// The rules of every directory that is granted.
    public private(set) var rules = GrantRules.none

    /// Makes a policy that asks the person about every request.
    public init() {}

    /// Parses a TOML file with `deny = ["~/.ssh"]`, `[[allow]]` tables of `path` and `access`, and the lists `hide`,
    /// `protect` and `only` of patterns.
    /// Throws `.invalidFile`, with the line, for anything else.
    ///
    /// - Parameters:
    /// file: the file's name in messages.
    /// home: replaces `~` at the beginning of a path.
    public init(_ bytes: [UInt8], file: String, home: [UInt8]) throws(GrantError) {
        let reader = SandboxProfileReader(file: file, home: home)
        var (lists, last): ([String: [RulePattern]], TOMLValue?) = ([:], nil)
        for (key, value) in try reader.items(of: bytes) {
            switch key {
            case "allow": allowed = try reader.list(value, key) { value throws(GrantError) in try reader.grant(value) }
            case "deny": denied = try reader.list(value, key) { value throws(GrantError) in try reader.path(value, key) }
            case "hide", "protect", "only": (lists[key], last) = (try reader.patterns(value, key), value)
            default: throw reader.unknown(key, value, among: ["allow", "deny", "hide", "protect", "only"])
            }
        }
        if let last { rules = try reader.rules(lists, last) }
    }

    /// Returns the policy with each path mapped by `change`, which resolves links so that a request
    /// cannot use another path.
    public func mapped(_ change: ([UInt8]) -> [UInt8]) -> RequestPolicy {
        var result = self
        result.allowed = allowed.map { SandboxProfile.Grant(path: change($0.path), access: $0.access) }
        result.denied = denied.map(change)
        return result
    }

    /// Decides on a directory. `path` has no links. A denied directory denies everything in it and
    /// every directory that holds it. Denial wins.
    public func verdict(on path: [UInt8], _ access: Access) -> Verdict {
        if denied.contains(where: { lies(path, in: $0) || lies($0, in: path) }) { return .denied }
        let isAllowed = allowed.contains { lies(path, in: $0.path) && (access == .readOnly || $0.access == .readWrite) }
        return isAllowed ? .allowed : .toBeAsked
    }

    /// Returns the rules for a directory, and whether they protect it. The result is nil if they hide it.
    ///
    /// They are relative to the outermost `[[allow]]` that contains it.
    ///
    /// - Parameter rules: Those of the policy, and more.
    package func place(_ path: [UInt8], of rules: GrantRules) throws(GrantError) -> GrantRules.Place? {
        let tops = allowed.map(\.path).filter { lies(path, in: $0) }
        guard let top = tops.min(by: { $0.count < $1.count }) else { return try rules.place(outside: path) }
        return try rules.place(at: Array(path.dropFirst(top.count)))
    }

    private func lies(_ path: [UInt8], in directory: [UInt8]) -> Bool {
        path == directory || directory == [0x2F] || path.starts(with: directory + [0x2F])
    }
}
