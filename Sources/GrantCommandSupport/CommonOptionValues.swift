import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore

extension ParsedArguments {
    package var wantsJSON: Bool { has("json") }

    package func view() throws(GrantError) -> ViewName? {
        guard let text = try text("view") else { return nil }
        return try ParsedArguments.view(named: text)
    }

    /// Returns the requested view, which has to be known, with or without a store, or nil if none
    /// was given.
    package func knownView(in store: GrantStore?) throws(GrantError) -> ViewName? {
        guard let view = try view() else { return nil }
        guard let store else { throw GrantAdministrator.unknown(view, among: []) }
        try GrantAdministrator(store: store).requireKnown(view)
        return view
    }

    package func name() throws(GrantError) -> GrantName? {
        guard let bytes = bytes("name") else { return nil }
        do {
            return try GrantName(chosen: bytes)
        } catch {
            throw GrantError(.usage, "invalid grant name “\(String(decoding: bytes, as: UTF8.self))”", cause: error.rawValue)
        }
    }

    /// In seconds, 0 to a day.
    package func timeout() throws(GrantError) -> Double {
        guard let text = try text("timeout") else { return GrantAdministrator.standardTimeout }
        guard let seconds = Double(text), seconds >= 0, seconds <= 86_400 else {
            throw GrantError(.usage, "invalid timeout “\(text)”", advice: "use a number of seconds, such as 10 or 0.5")
        }
        return seconds
    }

    /// How often a console is updated: in seconds, a tenth to an hour.
    package func delay() throws(GrantError) -> Double {
        guard let text = try text("delay") else { return 2 }
        guard let seconds = Double(text), seconds >= 0.1, seconds <= 3600 else {
            throw GrantError(.usage, "invalid delay “\(text)”", advice: "use a number of seconds, 0.1 to 3600")
        }
        return seconds
    }

    package func texts(_ option: String) throws(GrantError) -> [String] {
        var result: [String] = []
        for bytes in options[option] ?? [] { result.append(try ParsedArguments.text(bytes, "--\(option)")) }
        return result
    }

    package func selectors() throws(GrantError) -> [Selector] {
        var result: [Selector] = []
        for operand in operands { result.append(try Selector(operand)) }
        return result
    }
}
