import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite("`grantfs mcp` with clients of several versions")
    struct MCPProtocolTests {
        let fixture: MountFixture
        let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
            try Data("granted\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        /// A message of the server, by paths of members: `result/structuredContent/path`.
        struct Message {
            let members: [String: Any]

            init(_ line: String) throws {
                let object = try JSONSerialization.jsonObject(with: Data(line.utf8))
                members = try #require(object as? [String: Any], "\(line)")
            }

            subscript(path: String) -> Any? {
                path.split(separator: "/").reduce(members as Any?) { ($0 as? [String: Any])?[String($1)] }
            }

            func text(_ path: String) -> String? { self[path] as? String }
            var code: Int? { self["error/code"] as? Int }
            var isRefused: Bool { self["result/isError"] as? Bool == true }
            var access: String? { text("result/structuredContent/access") }
        }

        func start(
            _ options: String..., policy: String? = nil, with program: String = Programs.grantfs
        ) throws -> Child {
            var words = options
            if let policy {
                let path = fixture.base + "/policy"
                try policy.write(toFile: path, atomically: false, encoding: .utf8)
                chmod(path, 0o600)
                words += ["--policy", path]
            }
            return try Child([program, "mcp"] + words, environment: fixture.environment)
        }

        var allowing: String { "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n" }

        func hear(_ program: Child) throws -> Message { try Message(try #require(program.line())) }

        func ask(_ program: Child, _ message: String) throws -> Message {
            program.send(message)
            return try hear(program)
        }

        static let meta =
            #""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1"}}"#

        func call(_ tool: String, _ arguments: String, id: Int = 7, more: String = "") -> String {
            let parameters = #"{"name":"\#(tool)","arguments":\#(arguments)\#(more.isEmpty ? "" : ",\(more)")}"#
            return #"{"jsonrpc":"2.0","id":\#(id),"method":"tools/call","params":\#(parameters)}"#
        }

        func wanted(_ access: String = "read-write") -> String { #"{"path":"\#(source)","access":"\#(access)"}"# }

        /// A session of a client that can ask.
        func session(_ program: Child, elicitation: String = "{}") throws {
            let capabilities = #"{"elicitation":\#(elicitation)}"#
            let parameters =
                #"{"protocolVersion":"2025-11-25","capabilities":\#(capabilities),"clientInfo":{"name":"agent","version":"1"}}"#
            let hello = try ask(program, #"{"jsonrpc":"2.0","id":1,"method":"initialize","params":\#(parameters)}"#)
            #expect(hello.text("result/protocolVersion") == "2025-11-25")
        }

        func end(_ program: Child) throws {
            program.closeInput()
            #expect(program.wait(within: 60) == 0)
            try fixture.wait(until: "nothing is left", within: 60) { try fixture.mountpoints.isEmpty && fixture.list("--all").isEmpty }
        }

        // MARK: versions

        @Test("A session has the client's protocol version, or the newest one of sessions")
        func versions() throws {
            let program = try start("--ask", "never")
            for (wanted, given) in [
                ("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"), ("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"),
                ("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25"),
            ] {
                let parameters = #"{"protocolVersion":"\#(wanted)","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#
                let hello = try ask(program, #"{"jsonrpc":"2.0","id":1,"method":"initialize","params":\#(parameters)}"#)
                #expect(hello.text("result/protocolVersion") == given && hello["result/resultType"] == nil)
            }
            try end(program)
        }

        @Test("A request of 2026-07-28 stands alone, and says what its client speaks and can do")
        func stateless() throws {
            let program = try start("--ask", "never")
            let request = { (method: String, parameters: String) in
                try ask(program, #"{"jsonrpc":"2.0","id":1,"method":"\#(method)","params":{\#(parameters)}}"#)
            }
            let found = try request("server/discover", Self.meta)
            #expect((found["result/supportedVersions"] as? [String])?.first == "2026-07-28")
            #expect(found.text("result/resultType") == "complete" && found.text("result/cacheScope") == "private")
            let itself = (found["result/_meta"] as? [String: Any])?["io.modelcontextprotocol/serverInfo"] as? [String: Any]
            #expect(itself?["name"] as? String == "grantfs")
            let tools = try request("tools/list", Self.meta)
            #expect((tools["result/tools"] as? [Any])?.count == 6 && tools["result/ttlMs"] as? Int == 0)
            #expect(try ask(program, call("list_directories", "{}", more: Self.meta)).text("result/resultType") == "complete")
            // What is of sessions is not there.
            for method in ["ping", "initialize", "nothing"] { #expect(try request(method, Self.meta).code == -32601, "\(method)") }
            let prefix = "io.modelcontextprotocol/"
            for (meta, code) in [
                (#""_meta":{}"#, -32602), ("", -32602), (#""_meta":{"\#(prefix)protocolVersion":"2026-07-28"}"#, -32602),
                (#""_meta":{"\#(prefix)protocolVersion":1,"\#(prefix)clientCapabilities":{}}"#, -32602),
                (#""_meta":{"\#(prefix)protocolVersion":"2026-07-28","\#(prefix)clientCapabilities":[]}"#, -32602),
                (#""_meta":{"\#(prefix)protocolVersion":"2031-01-01","\#(prefix)clientCapabilities":{}}"#, -32022),
                // A version of sessions is none of a request that stands alone.
                (#""_meta":{"\#(prefix)protocolVersion":"2025-11-25","\#(prefix)clientCapabilities":{}}"#, -32022),
            ] {
                let answer = try request("server/discover", meta)
                #expect(answer.code == code, "\(meta)")
                #expect(code != -32022 || (answer["error/data/supported"] as? [String])?.contains("2025-11-25") == true)
            }
            try end(program)
        }

        // MARK: questions through the client

        @Test(
            "A person answers in the client of a session",
            arguments: [
                (#"{"action":"accept","content":{"decision":"read-write"}}"#, "read-write"),
                (#"{"action":"accept","content":{"decision":"read-only"}}"#, "read-only"),
                (#"{"action":"accept","content":{"decision":"no"}}"#, nil), (#"{"action":"decline"}"#, nil), (#"{"action":"cancel"}"#, nil),
                (#"{"action":"accept"}"#, nil), (#"{"action":"accept","content":{"decision":"everything"}}"#, nil), ("{}", nil), ("1", nil),
            ])
        func answered(result: String, access: String?) throws {
            let program = try start("--ask", "client")
            try session(program)
            let question = try ask(program, call("request_directory", wanted()))
            #expect(question.text("method") == "elicitation/create")
            let id = try #require(question.text("id"))
            let message = try #require(question.text("params/message"))
            #expect(message.contains("its name: agent") && message.hasSuffix("\n    \(source)"))
            #expect(question["params/requestedSchema/properties/decision"] != nil)
            // Answers to other questions are none to this one, and the server lives meanwhile.
            program.send(#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"decision":"read-write"}}}"#)
            program.send(#"{"jsonrpc":"2.0","id":"\#(id)0","result":{"action":"accept","content":{"decision":"read-write"}}}"#)
            #expect(try ask(program, #"{"jsonrpc":"2.0","id":8,"method":"ping"}"#)["id"] as? Int == 8)
            let answer = try ask(program, #"{"jsonrpc":"2.0","id":"\#(id)","result":\#(result)}"#)
            #expect(answer["id"] as? Int == 7 && answer.access == access && answer.isRefused == (access == nil))
            // It counts once.
            program.send(#"{"jsonrpc":"2.0","id":"\#(id)","result":{"action":"accept","content":{"decision":"read-write"}}}"#)
            let others = try ask(program, call("list_directories", "{}"))["result/structuredContent/directories"] as? [Any]
            #expect(others?.count == (access == nil ? 0 : 1))
            try end(program)
        }

        @Test("A client that cannot ask is not asked", arguments: ["[]", #"{"url":{}}"#])
        func cannotAsk(elicitation: String) throws {
            // Without a terminal and a desktop there is nobody else.
            let program = try Child(
                ["env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", "setsid", "--wait", Programs.grantfs, "mcp", "--ask", "client"],
                environment: fixture.environment)
            try session(program, elicitation: elicitation)
            #expect(try ask(program, call("request_directory", wanted())).isRefused)
            try end(program)
        }

        @Test("A client that fails, or is silent, grants nothing")
        func silent() throws {
            fixture.switches["GRANTFS_TEST_ANSWER_SECONDS"] = "1"
            let program = try start("--ask", "client", with: Programs.grantfsWithFaults)
            try session(program)
            var question = try ask(program, call("request_directory", wanted()))
            var id = try #require(question.text("id"))
            #expect(try ask(program, #"{"jsonrpc":"2.0","id":"\#(id)","error":{"code":-1,"message":"no"}}"#).isRefused)
            question = try ask(program, call("request_directory", wanted()))
            #expect(question.text("id") != id, "no id is used again")
            id = try #require(question.text("id"))
            let withdrawn = try hear(program)
            #expect(withdrawn.text("method") == "notifications/cancelled" && withdrawn.text("params/requestId") == id)
            #expect(try hear(program).isRefused)
            // Too late.
            program.send(#"{"jsonrpc":"2.0","id":"\#(id)","result":{"action":"accept","content":{"decision":"read-write"}}}"#)
            #expect((try ask(program, call("list_directories", "{}"))["result/structuredContent/directories"] as? [Any])?.isEmpty == true)
            try end(program)
        }

        @Test("A cancelled request withdraws its question, also one that waits for its turn")
        func cancelled() throws {
            let program = try start("--ask", "client")
            try session(program)
            let question = try ask(program, call("request_directory", wanted(), id: 11))
            program.send(call("request_directory", #"{"path":"\#(try fixture.source("second"))"}"#, id: 12))
            program.send(call("request_directory", #"{"path":"\#(try fixture.source("third"))"}"#, id: 13))
            program.send(#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}"#)
            program.send(#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}"#)
            let withdrawn = try hear(program)
            #expect(withdrawn.text("method") == "notifications/cancelled")
            #expect(withdrawn.text("params/requestId") == question.text("id"))
            #expect(try hear(program).text("params/message")?.hasSuffix("/third") == true, "nobody is asked for the second")
            try end(program)
        }

        @Test("An answer is heard however many requests wait")
        func flooded() throws {
            let program = try start("--ask", "client")
            try session(program)
            let question = try ask(program, call("request_directory", wanted(), id: 100))
            let id = try #require(question.text("id"))
            // More than one read(2) takes.
            let path = String(repeating: "x", count: 3_000)
            for number in 1...100 { program.send(call("release_directory", #"{"path":"\#(path)"}"#, id: number)) }
            program.send(#"{"jsonrpc":"2.0","id":"\#(id)","result":{"action":"accept","content":{"decision":"read-write"}}}"#)
            var (isGranted, refused) = (false, 0)
            for _ in 0..<101 {
                let answer = try hear(program)
                if answer.access != nil { isGranted = answer["id"] as? Int == 100 }
                if answer.code == -32000 { refused += 1 }
            }
            #expect(isGranted && refused == 36, "sixty-four wait")
            try end(program)
        }

        // MARK: questions between two requests

        private func again(_ state: String, _ decision: String = "read-write", _ arguments: String? = nil) -> String {
            let answer = #""decision":{"action":"accept","content":{"decision":"\#(decision)"}}"#
            let more = #"\#(Self.meta),"requestState":"\#(state)","inputResponses":{\#(answer)}"#
            return call("request_directory", arguments ?? wanted(), more: more)
        }

        private func state(_ program: Child, _ arguments: String? = nil) throws -> String {
            let question = try ask(program, call("request_directory", arguments ?? wanted(), more: Self.meta))
            #expect(question.text("result/resultType") == "input_required")
            #expect(question.text("result/inputRequests/decision/method") == "elicitation/create")
            return try #require(question.text("result/requestState"))
        }

        @Test("A client of 2026-07-28 comes back with the person's answer, once")
        func betweenRequests() throws {
            let program = try start("--ask", "client")
            let refused = try state(program)
            #expect(try ask(program, again(refused, "no")).isRefused)
            #expect(try ask(program, again(refused)).isRefused, "it was answered")
            #expect(try ask(program, again("0123456789abcdef")).isRefused)
            let other = try fixture.source("other")
            // The state belongs to one request.
            #expect(try ask(program, again(try state(program), "read-only", #"{"path":"\#(other)"}"#)).isRefused)
            #expect(try ask(program, again(try state(program, wanted("read-only")), "read-write")).isRefused)
            #expect(try ask(program, again(try state(program, wanted("read-only")), "read-write", wanted("read-only"))).isRefused)
            let more = #"\#(Self.meta),"inputResponses":{}"#
            #expect(try ask(program, call("request_directory", wanted(), more: more)).code == -32602, "without the state")
            // What stands there now is not what the person was shown.
            let exchanged = try state(program)
            rename(source, source + "-before")
            mkdir(source, 0o755)
            #expect(try ask(program, again(exchanged)).isRefused)
            // Nor is what a link leads to by now.
            let secret = try fixture.source("secret")
            for linked in [true, false] {
                let named = fixture.base + "/source/\(linked ? "link" : "plain")"
                if linked { symlink(source, named) } else { mkdir(named, 0o755) }
                let arguments = #"{"path":"\#(named)"}"#
                let asked = try state(program, arguments)
                if linked { unlink(named) } else { rename(named, named + "-before") }
                symlink(secret, named)
                #expect(try ask(program, again(asked, "read-only", arguments)).isRefused)
            }
            #expect(try fixture.list().isEmpty)
            let oldest = try state(program)
            for _ in 0..<16 { _ = try state(program) }
            #expect(try ask(program, again(oldest)).isRefused, "sixteen are open")
            let last = try state(program)
            let granted = try ask(program, again(last, "read-only"))
            #expect(granted.access == "read-only" && granted.text("result/resultType") == "complete")
            try end(program)
        }

        @Test("An answer that comes too late grants nothing")
        func late() throws {
            fixture.switches["GRANTFS_TEST_ANSWER_SECONDS"] = "0"
            let program = try start("--ask", "client", with: Programs.grantfsWithFaults)
            #expect(try ask(program, again(try state(program))).isRefused)
            try end(program)
        }
    }
}
