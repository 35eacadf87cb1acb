import GrantModel

/// What the command line said, checked against the command's declaration. Values are bytes: a path need not be UTF-8.
struct ParsedArguments: Sendable {
    let command: String
    var operands: [[UInt8]] = []
    /// The command line behind `--`, of a command that runs another program.
    var trailing: [[UInt8]] = []
    /// Each option given, by its long name, with its values in order; an option without a value has an empty one.
    var options: [String: [[UInt8]]] = [:]

    func has(_ option: String) -> Bool { options[option] != nil }

    /// The last one given counts.
    func bytes(_ option: String) -> [UInt8]? { options[option]?.last }

    /// The value as text; `.usage` when it is not UTF-8.
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

/// What is to be done.
enum Invocation: Sendable {
    case run(CommandDeclaration, ParsedArguments)
    /// Of one command, or of the program.
    case help(CommandDeclaration?)
    case version
}
