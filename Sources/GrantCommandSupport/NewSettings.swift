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

    /// Throws `.usage` if nothing is changed, or a value is invalid.
    package init(_ arguments: ParsedArguments) throws(GrantError) {
        (access, name, expires) = (try arguments.access(), try arguments.name(), try NewSettings.expiry(arguments))
        coordination = try NewSettings.coordination(arguments)
        if access == nil, name == nil, expires == nil, coordination == nil {
            throw GrantError(.usage, "set: no change is given", advice: "use --access, --name, --expires or --coordination")
        }
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
