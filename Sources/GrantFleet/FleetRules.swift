import GrantModel

// The rules of the fleet's grants, as they are in etcd: {"hide": [".env*"], "protect": [], "only": []}.
extension GrantRules {
    /// The limit of a grant's rules in etcd, in bytes of JSON. Thirty grants are changed in one transaction.
    static let mostFleetBytes = 16 << 10

    var fleetJSON: JSONValue {
        .object(
            Dictionary(
                uniqueKeysWithValues: lists.map { name, patterns in
                    (name, .array(patterns.map { .string(String(decoding: $0.text, as: UTF8.self)) }))
                }))
    }

    /// Throws `.usage` for rules that a grant of the fleet cannot have.
    public func requireFleet() throws(GrantError) {
        if let pattern = (hide + protect + only).first(where: { Array(String(decoding: $0.text, as: UTF8.self).utf8) != $0.text }) {
            throw GrantError(.usage, "the pattern “\(pattern)” is not for grants of a fleet", cause: "it is not UTF-8")
        }
        // As JSON writes them: a control character as \u0001.
        let bytes = (hide + protect + only).reduce(0) { bytes, pattern in
            bytes + 3 + pattern.text.reduce(0) { $0 + ($1 < 0x20 ? 6 : $1 == UInt8(ascii: "\"") || $1 == UInt8(ascii: "\\") ? 2 : 1) }
        }
        if bytes > Self.mostFleetBytes {
            throw GrantError(
                .usage, "too many rules for one grant of a fleet", cause: "\(Self.mostFleetBytes >> 10) KiB are the limit",
                advice: "use fewer patterns with wildcards")
        }
    }

    /// Decodes the rules of an entry. The result is nil for anything else than rules that make sense.
    init?(fleetJSON json: JSONValue?) {
        guard case .object(let members)? = json, members.count == 3 else { return nil }
        var lists: [[RulePattern]] = []
        for name in GrantRules.none.lists.map(\.name) {
            guard let items = members[name]?.items else { return nil }
            let patterns = items.compactMap { item in item.string.flatMap { try? RulePattern($0) } }
            guard patterns.count == items.count else { return nil }
            lists.append(patterns)
        }
        guard let rules = try? GrantRules(hide: lists[0], protect: lists[1], only: lists[2]), !rules.isEmpty else { return nil }
        self = rules
    }
}
