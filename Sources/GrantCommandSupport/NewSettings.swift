import GrantCommandLine
import GrantModel
import GrantSystem

/// What `grantfs set` changes of a grant.
package struct NewSettings: Sendable {
    package let access: Access?
    package let name: GrantName?
    /// `.some(nil)`: it ends no more.
    package let expires: Instant??
    package let coordination: Coordination?
    package let rules: RuleChange?

    /// Throws `.usage` if nothing is changed, or a value is invalid.
    package init(_ arguments: ParsedArguments) throws(GrantError) {
        (access, name, expires) = (try arguments.access(), try arguments.name(), try NewSettings.expiry(arguments))
        (coordination, rules) = (try NewSettings.coordination(arguments), try NewSettings.rules(arguments))
        if access == nil, name == nil, expires == nil, coordination == nil, rules == nil {
            throw GrantError(
                .usage, "set: no change is given",
                advice: "use --access, --name, --expires, --coordination, --hide, --protect, --only or --no-rules")
        }
    }

    private static func rules(_ arguments: ParsedArguments) throws(GrantError) -> RuleChange? {
        let change = try arguments.ruleChange()
        guard arguments.has("no-rules") else { return change.isEmpty ? nil : change }
        if !change.isEmpty {
            throw GrantError(.usage, "set: --no-rules removes all patterns", advice: "leave it out, or --hide, --protect and --only")
        }
        return RuleChange(.none)
    }

    private static func coordination(_ arguments: ParsedArguments) throws(GrantError) -> Coordination? {
        guard let text = try arguments.text("coordination") else { return nil }
        guard let coordination = Coordination(rawValue: text) else {
            throw GrantError(.usage, "invalid coordination “\(text)”", advice: "use advisory or mandatory")
        }
        return coordination
    }

    private static func expiry(_ arguments: ParsedArguments) throws(GrantError) -> Instant?? {
        guard let text = try arguments.text("expires") else { return nil }
        if text == "never" { return .some(nil) }
        return try Expiry.parse(text, now: Instant(nanoseconds: Clock.realtime))
    }
}
