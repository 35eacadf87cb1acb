import GrantModel

/// The parsed command line, checked against the command's declaration. Values are bytes: a path need not be UTF-8.
package struct ParsedArguments: Sendable {
    package let command: String
    package var operands: [[UInt8]] = []
    /// The command line after `--`, for a command that runs another program.
    package var trailing: [[UInt8]] = []
    /// The given options by long name, with their values in order. An option without a value has an empty one.
    package var options: [String: [[UInt8]]] = [:]

    package func has(_ option: String) -> Bool { options[option] != nil }

    /// Returns the last value.
    package func bytes(_ option: String) -> [UInt8]? { options[option]?.last }

    /// Returns the value as text. Throws `.usage` if it is not UTF-8.
    package func text(_ option: String) throws(GrantError) -> String? {
        guard let bytes = bytes(option) else { return nil }
        return try ParsedArguments.text(bytes, "the value of --\(option)")
    }

    package static func text(_ bytes: [UInt8], _ what: String) throws(GrantError) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw GrantError(.usage, "\(what) is wrong", cause: "it is not UTF-8")
        }
        return text
    }

    package static func view(named text: String) throws(GrantError) -> ViewName {
        do {
            return try ViewName(text)
        } catch {
            throw GrantError(.usage, "invalid view name “\(text)”", cause: error.rawValue)
        }
    }
}

/// What to do.
package enum Invocation: Sendable {
    case run(CommandDeclaration, ParsedArguments)
    /// The help for one command, or for the program.
    case help(CommandDeclaration?)
    case version
}
