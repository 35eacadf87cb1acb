import GrantCommandSupport
import GrantModel

/// The tools for the program.
enum MCPTool: String, CaseIterable {
    case request = "request_directory"
    case list = "list_directories"
    case release = "release_directory"
    case extend = "extend_directory"
    case narrow = "narrow_directory"
    case explain = "explain_path"

    struct Property {
        let name: String
        let description: String
        var choices: [String] = []
        var isList = false
    }

    private static let granted = Property(name: "path", description: "The directory, its name, or the path at which it was found")
    private static let rules = [
        Property(name: "hide", description: "Patterns, as in .gitignore, of names that you should not see", isList: true),
        Property(name: "protect", description: "Patterns of names that you should not change", isList: true),
        Property(name: "only", description: "Patterns of the only names that you need to see", isList: true),
    ]
    private static let reason = Property(
        name: "reason", description: "What it is needed for, in one sentence for the person who decides")

    var properties: [Property] {
        switch self {
        case .request:
            [
                Property(name: "path", description: "The directory: an absolute path, or one that begins with ~/"),
                Property(
                    name: "access", description: "The access that you need (default: read-only)",
                    choices: Access.allCases.map(\.rawValue).sorted()),
                Property(
                    name: "duration", description: "How long you need it: 90s, 30m, 2h, 7d (default: until this session ends)"),
                Self.reason,
            ] + Self.rules
        case .list: []
        case .release: [Self.granted]
        case .extend:
            [
                Self.granted,
                Property(name: "duration", description: "How long from now: 90s, 30m, 2h, 7d (default: until this session ends)"),
                Self.reason,
            ]
        case .narrow:
            [
                Self.granted, Property(name: "access", description: "No more than this", choices: [Access.readOnly.rawValue]),
                Property(name: "duration", description: "No longer than this, from now: 90s, 30m, 2h, 7d"),
            ] + Self.rules
        case .explain: [Property(name: "path", description: "An absolute path, on the host or below a granted directory")]
        }
    }

    private var summary: String {
        switch self {
        case .request: "Asks the person for access to a directory. The answer says at which path it is found."
        case .list: "Lists the directories that this session has been granted."
        case .release: "Gives a directory back that is not needed any more."
        case .extend: "Asks the person to leave a granted directory for longer."
        case .narrow: "Gives back part of a grant: writing, time, or names. It takes effect without a question."
        case .explain: "Says what this session may do at a path, and which grant or rule decides. It does not look at the disk."
        }
    }

    private var title: String {
        switch self {
        case .request: "Ask for a directory"
        case .list: "List granted directories"
        case .release: "Give a directory back"
        case .extend: "Ask for more time"
        case .narrow: "Give back part of a grant"
        case .explain: "Explain access to a path"
        }
    }

    /// What a client may assume. None of the tools changes or removes a file.
    private var annotations: JSON {
        let changes = self != .list && self != .explain
        return .object(
            [("title", .string(title)), ("readOnlyHint", .bool(!changes))]
                + (changes ? [("destructiveHint", .bool(false)), ("idempotentHint", .bool(self != .release))] : [])
                + [("openWorldHint", .bool(false))])
    }

    var json: JSON {
        let needed: [JSON] = self == .list ? [] : [.string("path")]
        return .object([
            ("name", .string(rawValue)), ("title", .string(title)), ("description", .string(summary)),
            ("inputSchema", Self.object(properties.map { ($0.name, Self.schema($0)) }, needed, isClosed: true)),
            ("outputSchema", outputSchema), ("annotations", annotations),
        ])
    }

    private var outputSchema: JSON {
        switch self {
        case .list:
            return Self.object(
                [("directories", .object([("type", .string("array")), ("items", Self.directory)]))], [.string("directories")])
        case .explain:
            let verdicts = MCPGrants.Explanation.Verdict.allCases.map { JSON.string($0.rawValue) }
            let texts = ["path", "directory", "rule"].map { ($0, Self.text) }
            return Self.object(
                texts + [("verdict", .object([("type", .string("string")), ("enum", .array(verdicts))]))], [.string("verdict")])
        default: return Self.directory
        }
    }

    private static let text = JSON.object([("type", .string("string"))])

    /// A granted directory, as `MCPGrants.Shown` has it.
    private static var directory: JSON {
        let names = ["path", "directory", "access", "name", "view", "grant"]
        return object(
            names.map { ($0, text) } + [
                ("rules", .object([("type", .string("object"))])),
                ("expires", .object([("type", .array([.string("string"), .string("null")]))])),
            ], names.map { .string($0) })
    }

    private static func schema(_ property: Property) -> JSON {
        .object(
            [("type", .string(property.isList ? "array" : "string")), ("description", .string(property.description))]
                + (property.isList ? [("items", text)] : [])
                + (property.choices.isEmpty ? [] : [("enum", .array(property.choices.map { .string($0) }))]))
    }

    private static func object(_ properties: [(String, JSON)], _ needed: [JSON], isClosed: Bool = false) -> JSON {
        .object(
            [("type", .string("object")), ("properties", .object(properties))]
                + (needed.isEmpty ? [] : [("required", .array(needed))])
                + (isClosed ? [("additionalProperties", .bool(false))] : []))
    }
}
