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
    let grants: MCPGrants
    let policy: RequestPolicy
    let means: MCPAsking.Means
    let lines = MessageLines(0)
    let reader: JSONReader
    var questions = MCPOpenQuestions()
    /// The client, as it said in `initialize`.
    private var session = MCPClient()

    init(_ grants: MCPGrants, _ policy: RequestPolicy, _ means: MCPAsking.Means) throws(GrantError) {
        guard let reader = JSONReader() else { throw GrantError(.exhausted, "no message can be read", cause: "there is no memory") }
        (self.grants, self.policy, self.means, self.reader) = (grants, policy, means, reader)
    }

    /// Serves until standard input ends.
    func run() throws(GrantError) {
        while true {
            switch lines.next() {
            case .end: return
            case .tooLong:
                try answer(.null, MCPError(code: -32600, message: "the message is longer than \(MessageLines.longest) bytes"))
            case .line(let line): try serve(line)
            }
        }
    }

    private func serve(_ line: [UInt8]) throws(GrantError) {
        guard let message = reader.read(line) else { return try answer(.null, MCPError(code: -32700, message: "this is not JSON")) }
        guard case .object = message, message.member("jsonrpc")?.stringValue == "2.0", let id = id(of: message, "$.id", line) else {
            return try answer(.null, MCPError(code: -32600, message: "this is not a request of JSON-RPC 2.0"))
        }
        guard let method = message.member("method")?.stringValue else {
            // A response to no request.
            if message.member("result") != nil || message.member("error") != nil { return }
            return try answer(id ?? .null, MCPError(code: -32600, message: "there is no method"))
        }
        // A notification gets no response.
        guard let id else { return }
        do throws(MCPError) {
            let result = try result(of: method, message.member("params") ?? .object([]), id)
            // A cancelled request gets no response.
            if let result { try write(.object([("jsonrpc", .string("2.0")), ("id", id), ("result", result)])) }
        } catch {
            try answer(id, error)
        }
    }

    /// Returns the id of a message, `.some(nil)` if it has none, and nil if it has one that makes no sense.
    private func id(of message: JSON, _ path: StaticString, _ line: [UInt8]) -> JSON?? {
        switch message.member("id") {
        case nil: .some(nil)
        case .number(let number): reader.digits(at: path, in: line) ?? .number(number)
        case .string(let text): .string(text)
        case .integer(let number): .integer(number)
        default: nil
        }
    }

    private func answer(_ id: JSON, _ error: MCPError) throws(GrantError) {
        let members: [(String, JSON)] = [("code", .integer(error.code)), ("message", .string(error.message))]
        let data = error.data.map { [("data", $0)] } ?? []
        try output(.object([("jsonrpc", .string("2.0")), ("id", id), ("error", .object(members + data))]))
    }

    private func write(_ message: JSON) throws(MCPError) {
        do throws(GrantError) {
            try output(message)
        } catch {
            throw MCPError(code: -32603, message: error.description)
        }
    }

    func output(_ message: JSON) throws(GrantError) { try Terminal.print(message.text) }

    /// Returns nil if the request was cancelled.
    private func result(of method: String, _ parameters: JSON, _ id: JSON) throws(MCPError) -> JSON? {
        guard case .object = parameters else { throw .invalid("“params” is an object") }
        guard let client = try MCPClient(request: parameters, method) else {
            switch method {
            case "initialize": return initialize(parameters)
            case "ping": return .object([])
            case "tools/list": return .object([tools])
            case "tools/call": return try call(parameters, MCPCall(id, session, parameters))
            default: throw unknown(method)
            }
        }
        switch method {
        case "server/discover":
            let versions = ("supportedVersions", JSON.array(MCPClient.versions.map { .string($0) }))
            return complete([versions, capabilities, instructions] + Self.keptByNobody)
        case "tools/list": return complete([tools] + Self.keptByNobody)
        case "tools/call":
            guard case .object(let members)? = try call(parameters, MCPCall(id, client, parameters)) else { return nil }
            return complete(members)
        default: throw unknown(method)
        }
    }

    private func unknown(_ method: String) -> MCPError { MCPError(code: -32601, message: "there is no method “\(method)”") }

    // MARK: what the server says of itself

    private static let itself = JSON.object([("name", .string("grantfs")), ("version", .string(ProgramDeclaration.version))])
    /// A client that updates this program would see old tools otherwise.
    private static let keptByNobody: [(String, JSON)] = [("ttlMs", .integer(0)), ("cacheScope", .string("private"))]

    private var tools: (String, JSON) { ("tools", .array(MCPTool.allCases.map(\.json))) }
    private var capabilities: (String, JSON) { ("capabilities", .object([("tools", .object([]))])) }
    private var instructions: (String, JSON) {
        (
            "instructions",
            .string(
                "Ask for a directory with request_directory before you use it. A person may answer, so it can take minutes. "
                    + "The directory is at the path in the answer, until it is released, its time is over, the person "
                    + "revokes it (EACCES), or this session ends.")
        )
    }

    private func initialize(_ parameters: JSON) -> JSON {
        session = MCPClient(session: parameters)
        let wanted = parameters.member("protocolVersion")?.stringValue ?? ""
        let version = MCPClient.sessionVersions.contains(wanted) ? wanted : MCPClient.sessionVersions[0]
        return .object([("protocolVersion", .string(version)), capabilities, ("serverInfo", Self.itself), instructions])
    }

    /// Returns the result of a stateless request.
    private func complete(_ members: [(String, JSON)]) -> JSON {
        let isTyped = members.contains { $0.0 == "resultType" }
        return .object(
            members + (isTyped ? [] : [("resultType", .string("complete"))])
                + [("_meta", .object([("io.modelcontextprotocol/serverInfo", Self.itself)]))])
    }

    // MARK: while a person decides

    /// Lets a message wait for its turn. There is an end to that, but the answer of the client and what it cancels are read in any case.
    private func queue(_ line: [UInt8]) -> MCPAsking.Meanwhile {
        guard lines.isFull else { return .queued }
        guard let message = reader.read(line), message.member("method") != nil, let id = id(of: message, "$.id", line).flatMap({ $0 })
        else {
            return .served
        }
        do throws(GrantError) {
            try answer(id, MCPError(code: -32000, message: "too many requests wait for a person's decision"))
            return .served
        } catch {
            return .cancelled
        }
    }

    /// Takes a message that arrives while a person decides on the request `id`.
    func serveMeanwhile(_ line: [UInt8], asking id: JSON) -> MCPAsking.Meanwhile {
        guard let message = reader.read(line), let method = message.member("method")?.stringValue else { return queue(line) }
        let parameters = message.member("params")
        switch method {
        case "notifications/cancelled":
            let named = [parameters?.member("requestId")?.text, reader.digits(at: "$.params.requestId", in: line)?.text]
            if named.contains(id.text) { return .cancelled }
            // A request that waits for its turn would ask the person for nothing.
            lines.drop { queued in
                guard let request = reader.read(queued), request.member("method") != nil else { return false }
                return self.id(of: request, "$.id", queued).flatMap { $0 }.map { named.contains($0.text) } ?? false
            }
            return .served
        case "ping", "tools/list", "server/discover": break
        case "tools/call" where parameters?.member("name")?.stringValue == MCPTool.list.rawValue: break
        default: return queue(line)
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
