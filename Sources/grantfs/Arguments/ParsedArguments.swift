import GrantModel

/// The parsed command line, checked against the command's declaration. Values are bytes: a path need not be UTF-8.
struct ParsedArguments: Sendable {
    let command: String
    var operands: [[UInt8]] = []
    /// The command line after `--`, for a command that runs another program.
    var trailing: [[UInt8]] = []
    /// The given options by long name, with their values in order. An option without a value has an empty one.
    var options: [String: [[UInt8]]] = [:]

    func has(_ option: String) -> Bool { options[option] != nil }

    /// Returns the last value.
    func bytes(_ option: String) -> [UInt8]? { options[option]?.last }

    /// Returns the value as text. Throws `.usage` if it is not UTF-8.
    func text(_ option: String) throws(GrantError) -> String? {
        guard let bytes = bytes(option) else { return nil }
        return try ParsedArguments.text(bytes, "the value of --\(option)")
    }

    static func text(_ bytes: [UInt8], _ what: String) throws(GrantError) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw GrantError(.usage, "\(what) is wrong", cause: "it is not UTF-8")
        }
        return text
    }
}

/// What to do.
enum Invocation: Sendable {
    case run(CommandDeclaration, ParsedArguments)
    /// The help for one command, or for the program.
    case help(CommandDeclaration?)
    case version
}
