import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore

/// Options of several commands, and their values.
enum CommonOptions {
    static let view = OptionDeclaration("view", value: "V", help: "only in this view")
    static let json = OptionDeclaration("json", help: "one JSON document on stdout")
    static let access = OptionDeclaration(
        "access", value: "A", help: "read-write (rw) or read-only (ro)", choices: ["read-write", "read-only", "rw", "ro"])
    static func readOnly(_ help: String) -> OptionDeclaration {
        OptionDeclaration("read-only", short: "r", aliases: ["ro"], help: help)
    }
    static let timeout = OptionDeclaration("timeout", value: "S", help: "seconds for the mounts to confirm (default: 10)")
    static let selectorNote =
        "SELECTOR is a grant's name, its id, or a unique prefix of the id of 8 characters or more. A name in several views needs --view."
}

extension ParsedArguments {
    var wantsJSON: Bool { has("json") }

    func view() throws(GrantError) -> ViewName? {
        guard let text = try text("view") else { return nil }
        return try ParsedArguments.view(named: text)
    }

    /// Returns the requested view, which has to be known, with or without a store, or nil if none
    /// was given.
    func knownView(in store: GrantStore?) throws(GrantError) -> ViewName? {
        guard let view = try view() else { return nil }
        guard let store else { throw GrantAdministrator.unknown(view, among: []) }
        try GrantAdministrator(store: store).requireKnown(view)
        return view
    }

    func name() throws(GrantError) -> GrantName? {
        guard let bytes = bytes("name") else { return nil }
        do {
            return try GrantName(chosen: bytes)
        } catch {
            throw GrantError(.usage, "invalid grant name “\(String(decoding: bytes, as: UTF8.self))”", cause: error.rawValue)
        }
    }

    /// In seconds, 0 to a day.
    func timeout() throws(GrantError) -> Double {
        guard let text = try text("timeout") else { return GrantAdministrator.standardTimeout }
        guard let seconds = Double(text), seconds >= 0, seconds <= 86_400 else {
            throw GrantError(.usage, "invalid timeout “\(text)”", advice: "use a number of seconds, such as 10 or 0.5")
        }
        return seconds
    }

    func selectors() throws(GrantError) -> [Selector] {
        var result: [Selector] = []
        for operand in operands { result.append(try Selector(operand)) }
        return result
    }
}
