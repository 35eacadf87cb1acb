import GrantCommandSupport

/// An error of JSON-RPC.
struct MCPError: Error {
    let code: Int64
    let message: String
    var data: JSON?

    /// The request makes no sense.
    static func invalid(_ message: String) -> MCPError { MCPError(code: -32602, message: message) }
}

/// What a client speaks, and can do.
///
/// Up to 2025-11-25 it declares this once, in `initialize`. Since 2026-07-28 requests are stateless: each declares it in `_meta`, and
/// declarations of earlier requests may not count.
struct MCPClient {
    /// The versions that begin with `initialize`, newest first.
    static let sessionVersions = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
    /// The versions with stateless requests, newest first.
    static let statelessVersions = ["2026-07-28"]
    static let versions = statelessVersions + sessionVersions

    /// The client's name of itself. Empty if it gave none.
    var name = ""
    var isStateless = false
    /// Whether it puts a form to the person and returns the answer.
    var canAsk = false

    init() {}

    /// The client of a session.
    ///
    /// - Parameter parameters: those of `initialize`.
    init(session parameters: JSON) {
        name = Self.name(parameters.member("clientInfo"))
        canAsk = Self.canAsk(parameters.member("capabilities"))
    }

    /// The client of a stateless request. It is nil for a request of a session.
    ///
    /// - Throws: If it does not say enough of itself, or speaks an unknown version.
    init?(request parameters: JSON, _ method: String) throws(MCPError) {
        let prefix = "io.modelcontextprotocol/"
        let meta = parameters.member("_meta")
        guard method == "server/discover" || meta?.member(prefix + "protocolVersion") != nil else { return nil }
        guard let version = meta?.member(prefix + "protocolVersion")?.stringValue else {
            throw .invalid("“_meta” has no text “\(prefix)protocolVersion”")
        }
        guard Self.statelessVersions.contains(version) else {
            let versions = Self.versions.map { JSON.string($0) }
            throw MCPError(
                code: -32022, message: "this version of the protocol is not supported",
                data: .object([("supported", .array(versions)), ("requested", .string(version))]))
        }
        guard let capabilities = meta?.member(prefix + "clientCapabilities"), case .object = capabilities else {
            throw .invalid("“_meta” has no object “\(prefix)clientCapabilities”")
        }
        isStateless = true
        name = Self.name(meta?.member(prefix + "clientInfo"))
        canAsk = Self.canAsk(capabilities)
    }

    private static func name(_ information: JSON?) -> String { information?.member("name")?.stringValue ?? "" }

    /// A client that does not say which kinds of questions it can put can put forms.
    private static func canAsk(_ capabilities: JSON?) -> Bool {
        guard let elicitation = capabilities?.member("elicitation"), case .object(let kinds) = elicitation else { return false }
        return kinds.isEmpty || kinds.contains { $0.0 == "form" }
    }
}

/// A call of a tool, apart from the tool's arguments.
struct MCPCall {
    let id: JSON
    let client: MCPClient
    /// The client wants progress to be reported under this token.
    let progress: JSON?
    /// The question that it answers.
    let state: String?
    let responses: JSON?

    init(_ id: JSON, _ client: MCPClient, _ parameters: JSON) throws(MCPError) {
        (self.id, self.client) = (id, client)
        progress = parameters.member("_meta")?.member("progressToken")
        responses = parameters.member("inputResponses")
        let given = parameters.member("requestState")
        state = given?.stringValue
        // An answer says which question it answers.
        if client.isStateless, given != nil || responses != nil, state == nil { throw .invalid("“requestState” is missing, or no text") }
    }
}
