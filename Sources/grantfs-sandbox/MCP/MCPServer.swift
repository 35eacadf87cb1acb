import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantSystem

/// A server of the Model Context Protocol on standard input and output: JSON-RPC 2.0, one message a line. It serves requests in order,
/// but answers what needs no decision while a person is asked.
final class MCPServer {
    private let grants: MCPGrants
    private let policy: RequestPolicy
    private let means: MCPAsking.Means
    private let lines = MessageLines(0)
    private let reader: JSONReader
    private var client = ""

    /// The supported versions of the protocol, newest first.
    private static let versions = ["2025-06-18", "2025-03-26", "2024-11-05"]

    init(_ grants: MCPGrants, _ policy: RequestPolicy, _ means: MCPAsking.Means) throws(GrantError) {
        guard let reader = JSONReader() else { throw GrantError(.exhausted, "no message can be read", cause: "there is no memory") }
        (self.grants, self.policy, self.means, self.reader) = (grants, policy, means, reader)
    }

    /// Serves until standard input ends.
    func run() throws(GrantError) {
        while true {
            switch lines.next() {
            case .end: return
            case .tooLong: try answer(.null, error: -32600, "the message is longer than \(MessageLines.longest) bytes")
            case .line(let line): try serve(line)
            }
        }
    }

    /// An error in a request.
    private struct Refusal: Error {
        let code: Int64
        let message: String
    }

    private func serve(_ line: [UInt8]) throws(GrantError) {
        guard let message = reader.read(line) else { return try answer(.null, error: -32700, "this is not JSON") }
        let id = message.member("id").map { if case .number = $0 { reader.digits(at: "$.id", in: line) ?? $0 } else { $0 } }
        guard case .object = message, message.member("jsonrpc")?.stringValue == "2.0", isID(id) else {
            return try answer(.null, error: -32600, "this is not a request of JSON-RPC 2.0")
        }
        guard let method = message.member("method")?.stringValue else {
            // A response to no request.
            if message.member("result") != nil || message.member("error") != nil { return }
            return try answer(id ?? .null, error: -32600, "there is no method")
        }
        // A notification gets no response.
        guard let id else { return }
        do throws(Refusal) {
            let result = try result(of: method, message.member("params") ?? .object([]), id)
            // A cancelled request gets no response.
            if let result { try write(.object([("jsonrpc", .string("2.0")), ("id", id), ("result", result)])) }
        } catch {
            try answer(id, error: error.code, error.message)
        }
    }

    private func isID(_ id: JSON?) -> Bool {
        switch id {
        case nil, .string, .integer, .number, .digits: true
        default: false
        }
    }

    private func answer(_ id: JSON, error code: Int64, _ message: String) throws(GrantError) {
        try output(
            .object([
                ("jsonrpc", .string("2.0")), ("id", id), ("error", .object([("code", .integer(code)), ("message", .string(message))])),
            ]))
    }

    private func write(_ message: JSON) throws(Refusal) {
        do throws(GrantError) {
            try output(message)
        } catch {
            throw Refusal(code: -32603, message: error.description)
        }
    }

    private func output(_ message: JSON) throws(GrantError) { try Terminal.print(message.text) }

    /// Returns nil if the request was cancelled.
    private func result(of method: String, _ parameters: JSON, _ id: JSON) throws(Refusal) -> JSON? {
        guard case .object = parameters else { throw Refusal(code: -32602, message: "“params” is an object") }
        switch method {
        case "initialize": return initialize(parameters)
        case "ping": return .object([])
        case "tools/list": return .object([("tools", .array(MCPTool.allCases.map(\.json)))])
        case "tools/call":
            guard let name = parameters.member("name")?.stringValue, let tool = MCPTool(rawValue: name) else {
                throw Refusal(code: -32602, message: "there is no tool of that name")
            }
            let arguments = parameters.member("arguments") ?? .object([])
            guard case .object(let members) = arguments else { throw Refusal(code: -32602, message: "“arguments” is an object") }
            let unknown = members.first { member in !tool.properties.contains { $0.name == member.0 } }
            if let unknown { throw Refusal(code: -32602, message: "unknown argument “\(unknown.0)” of \(name)") }
            return try call(tool, arguments, id, progress: parameters.member("_meta")?.member("progressToken"))
        default: throw Refusal(code: -32601, message: "there is no method “\(method)”")
        }
    }

    private func initialize(_ parameters: JSON) -> JSON {
        client = parameters.member("clientInfo")?.member("name")?.stringValue ?? ""
        let wanted = parameters.member("protocolVersion")?.stringValue ?? ""
        return .object([
            ("protocolVersion", .string(MCPServer.versions.contains(wanted) ? wanted : MCPServer.versions[0])),
            ("capabilities", .object([("tools", .object([]))])),
            ("serverInfo", .object([("name", .string("grantfs")), ("version", .string(ProgramDeclaration.version))])),
            (
                "instructions",
                .string(
                    "Ask for a directory with request_directory before you use it. A person may answer, so it can take minutes. "
                        + "The directory is at the path in the answer, until it is released, the person revokes it "
                        + "(EACCES), or this session ends.")
            ),
        ])
    }

    // MARK: tools

    private func call(_ tool: MCPTool, _ arguments: JSON, _ id: JSON, progress token: JSON?) throws(Refusal) -> JSON? {
        do throws(GrantError) {
            switch tool {
            case .request: return try request(arguments, id, progress: token)
            case .list:
                let all = try grants.all()
                let text = all.isEmpty ? "Nothing is granted." : all.map { line($0) }.joined(separator: "\n")
                return content(text, .object([("directories", .array(all.map(\.json)))]))
            case .release:
                let word = try path(arguments)
                let released = try grants.release(word, directory: CanonicalPath.resolveWhatExists(CanonicalPath.plain(expanded(word))))
                return content("Released: \(line(released))", released.json)
            }
        } catch {
            // An error that a model may read and correct is not a protocol error.
            if error.code == .usage { throw Refusal(code: -32602, message: error.description) }
            return refusal(error.description)
        }
    }

    private func line(_ shown: MCPGrants.Shown) -> String {
        "\(Terminal.visible(shown.place)) (\(shown.grant.access.rawValue) of \(Terminal.visible(shown.directory)))"
    }

    private func content(_ text: String, _ structured: JSON) -> JSON {
        .object([
            ("content", .array([.object([("type", .string("text")), ("text", .string(text))])])), ("structuredContent", structured),
            ("isError", .bool(false)),
        ])
    }

    private func refusal(_ text: String) -> JSON {
        .object([("content", .array([.object([("type", .string("text")), ("text", .string(text))])])), ("isError", .bool(true))])
    }

    private func path(_ arguments: JSON) throws(GrantError) -> [UInt8] {
        guard let word = arguments.member("path")?.stringValue, !word.isEmpty, word.utf8.count <= 4096 else {
            throw GrantError(.usage, "“path” is missing, or no text")
        }
        return Array(word.utf8)
    }

    /// The rules by which the client restricts itself.
    private func rules(_ arguments: JSON) throws(GrantError) -> GrantRules {
        var lists: [[RulePattern]] = []
        for name in ["hide", "protect", "only"] {
            guard let given = arguments.member(name) else {
                lists.append([])
                continue
            }
            guard case .array(let items) = given, items.count <= GrantRules.most else {
                throw GrantError(.usage, "“\(name)” is a list of at most \(GrantRules.most) patterns")
            }
            var patterns: [RulePattern] = []
            for item in items {
                guard let text = item.stringValue else { throw GrantError(.usage, "a pattern of “\(name)” is no text") }
                patterns.append(try RulePattern(Array(text.utf8)))
            }
            lists.append(patterns)
        }
        return try GrantRules(hide: lists[0], protect: lists[1], only: lists[2])
    }

    /// The path that a word means: `~/` is the home directory.
    private func expanded(_ word: [UInt8]) -> [UInt8] {
        word == [0x7E] || word.starts(with: [0x7E, 0x2F]) ? SandboxProfiles.home + word.dropFirst() : word
    }

    private func request(_ arguments: JSON, _ id: JSON, progress token: JSON?) throws(GrantError) -> JSON? {
        let word = expanded(try path(arguments))
        guard word.first == 0x2F else { throw GrantError(.usage, "“path” is not absolute", advice: "/… or ~/…") }
        let path = CanonicalPath.plain(word)
        let given = arguments.member("access") ?? .string(Access.readOnly.rawValue)
        guard let access = given.stringValue.flatMap({ Access(word: $0) }) else {
            throw GrantError(.usage, "“access” is read-only or read-write")
        }
        var reason = ""
        if let given = arguments.member("reason") {
            guard let text = given.stringValue else { throw GrantError(.usage, "“reason” is text") }
            reason = text
        }
        let own = try rules(arguments)
        _ = try grants.rules.narrowed(by: own)
        // Denied before the client can learn whether it exists, or where its links lead.
        if try isDenied(path, access) { return denied }
        if try isDenied(CanonicalPath.resolveWhatExists(path), access) { return denied }
        let proposal = try grants.look(at: path, for: access)
        let found = proposal.bookmark.path
        if let shown = try grants.existing(proposal), access == .readOnly || shown.grant.access == .readWrite {
            return content("Granted already: \(line(shown))", shown.json)
        }
        if let (shown, below) = try grants.containing(proposal, access) {
            if let refused = refusal(of: try shown.grant.rules.place(at: below), access) { return refused }
            return content("Granted already: \(line(shown))", shown.json)
        }
        // A person who changed it decides again, even if the policy allows it.
        let wasTakenBack = try grants.wasTakenBack(proposal.bookmark)
        switch policy.verdict(on: found, access) {
        case .denied: return denied
        case .allowed where !wasTakenBack: return try grant(proposal, access, own, isDecided: false)
        case .allowed where means == .never: return refusal("Not granted: a person has changed or taken it back in this session.")
        case .allowed, .toBeAsked:
            // Before a person is asked in vain.
            if let refused = refusal(of: try grants.place(found), access) { return refused }
        }
        var passed: Int64 = 0
        let asking = MCPAsking(means: means, client: client) { seconds in
            guard let token else { return }
            passed += seconds
            try? self.output(self.progress(token, passed))
        }
        let answer = asking.ask(found, access, reason: reason, lines) { serveMeanwhile($0, asking: id) }
        switch answer {
        case .cancelled: return nil
        case .no(let why): return refusal("Not granted: \(why).")
        case .yes(let chosen, let access):
            // It may be another directory, or exchanged by now: what the person was shown counts.
            let final = try grants.look(at: chosen, for: access)
            guard chosen != found || final.bookmark.identity == proposal.bookmark.identity else {
                return refusal("Not granted: another directory is there than when the person was asked.")
            }
            if policy.verdict(on: final.bookmark.path, access) == .denied { return denied }
            return try grant(final, access, own, isDecided: true)
        }
    }

    private func isDenied(_ path: [UInt8], _ access: Access) throws(GrantError) -> Bool {
        if policy.verdict(on: path, access) == .denied { return true }
        return try grants.place(path) == nil
    }

    private var denied: JSON { refusal("Not granted: the policy denies it.") }

    private func refusal(of place: GrantRules.Place?, _ access: Access) -> JSON? {
        guard let place else { return denied }
        if place.isProtected, access == .readWrite { return refusal("Not granted: the policy protects it. It can be read-only.") }
        return nil
    }

    private func grant(
        _ proposal: GrantAdministrator.Proposal, _ access: Access, _ own: GrantRules, isDecided: Bool
    ) throws(GrantError) -> JSON {
        let place = try grants.place(proposal.bookmark.path)
        if let refused = refusal(of: place, access) { return refused }
        guard let place else { return denied }
        let shown = try grants.grant(proposal, access, place.rules.narrowed(by: own), isDecided: isDecided)
        return content("Granted: \(line(shown))", shown.json)
    }

    private func progress(_ token: JSON, _ passed: Int64) -> JSON {
        .object([
            ("jsonrpc", .string("2.0")), ("method", .string("notifications/progress")),
            (
                "params",
                .object([
                    ("progressToken", token), ("progress", .integer(passed)), ("message", .string("waiting for a person's decision")),
                ])
            ),
        ])
    }

    /// Takes a message that arrives while a person decides on the request `id`.
    private func serveMeanwhile(_ line: [UInt8], asking id: JSON) -> MCPAsking.Meanwhile {
        guard let message = reader.read(line), let method = message.member("method")?.stringValue else { return .queued }
        let parameters = message.member("params")
        switch method {
        case "notifications/cancelled":
            let named = parameters?.member("requestId")?.text
            return named == id.text || reader.digits(at: "$.params.requestId", in: line)?.text == id.text ? .cancelled : .queued
        case "ping", "tools/list": break
        case "tools/call" where parameters?.member("name")?.stringValue == MCPTool.list.rawValue: break
        default: return .queued
        }
        do throws(GrantError) {
            try serve(line)
            return .served
        } catch {
            // The client takes no output any more.
            return .cancelled
        }
    }
}

/// The tools for the program.
enum MCPTool: String, CaseIterable {
    case request = "request_directory"
    case list = "list_directories"
    case release = "release_directory"

    struct Property {
        let name: String
        let description: String
        var choices: [String] = []
        var isList = false
    }

    var properties: [Property] {
        switch self {
        case .request:
            [
                Property(name: "path", description: "The directory: an absolute path, or one that begins with ~/"),
                Property(
                    name: "access", description: "The access that you need (default: read-only)", choices: ["read-only", "read-write"]),
                Property(name: "reason", description: "What it is needed for, in one sentence for the person who decides"),
                Property(name: "hide", description: "Patterns, as in .gitignore, of names that you should not see", isList: true),
                Property(name: "protect", description: "Patterns of names that you should not change", isList: true),
                Property(name: "only", description: "Patterns of the only names that you need to see", isList: true),
            ]
        case .list: []
        case .release: [Property(name: "path", description: "The directory, its name, or the path at which it was found")]
        }
    }

    private var summary: String {
        switch self {
        case .request: "Asks the person for access to a directory. The answer says at which path it is found."
        case .list: "Lists the directories that this session has been granted."
        case .release: "Gives a directory back that is not needed any more."
        }
    }

    var json: JSON {
        let schema = properties.map { property in
            (
                property.name,
                JSON.object(
                    [("type", .string(property.isList ? "array" : "string")), ("description", .string(property.description))]
                        + (property.isList ? [("items", .object([("type", .string("string"))]))] : [])
                        + (property.choices.isEmpty ? [] : [("enum", .array(property.choices.map { .string($0) }))]))
            )
        }
        return .object([
            ("name", .string(rawValue)), ("description", .string(summary)),
            (
                "inputSchema",
                .object(
                    [("type", .string("object")), ("properties", .object(schema)), ("additionalProperties", .bool(false))]
                        + (self == .list ? [] : [("required", .array([.string("path")]))]))
            ),
        ])
    }
}
