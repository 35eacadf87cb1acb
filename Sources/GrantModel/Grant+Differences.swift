extension Access {
    /// Parses an access as people write it: `read-only`, `ro`, `read-write`, `rw`.
    public init?(word: String) {
        switch word {
        case "read-only", "ro": self = .readOnly
        case "read-write", "rw": self = .readWrite
        default: return nil
        }
    }
}

extension Grant {
    /// Describes what a change makes of the grant, for people: `access read-write → read-only`.
    package func differences(to new: Grant) -> [String] {
        (name == new.name ? [] : ["name \(name) → \(new.name)"])
            + Grant.differences(
                (access, expires, coordination), access == new.access ? nil : new.access,
                expires == new.expires ? nil : .some(new.expires), coordination == new.coordination ? nil : new.coordination)
            + rules.differences(to: new.rules)
            + (isOffered == new.isOffered ? [] : [isOffered ? "offered → allowed" : "allowed → offered"])
    }

    /// Returns the same as `differences(to:)`, for some of a grant's properties. Properties whose
    /// new value is nil do not change.
    package static func differences(
        _ now: (access: Access, expires: Instant?, coordination: Coordination), _ access: Access?, _ expires: Instant??,
        _ coordination: Coordination?
    ) -> [String] {
        var differences: [String] = []
        if let access { differences.append("access \(now.access.rawValue) → \(access.rawValue)") }
        if let expires {
            let shown = { (instant: Instant?) in instant.map { Timestamp.local($0) } ?? "never" }
            differences.append("expires \(shown(now.expires)) → \(shown(expires))")
        }
        if let coordination { differences.append("coordination \(now.coordination.rawValue) → \(coordination.rawValue)") }
        return differences
    }
}
