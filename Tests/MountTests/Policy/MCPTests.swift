import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite("Requests over `grantfs mcp`")
    struct AskingByMCP {
        let fixture: MountFixture
        let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
            try Data("granted\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        struct Answer: Decodable {
            struct Failure: Decodable {
                let code: Int
            }
            struct Result: Decodable {
                struct Content: Decodable {
                    let text: String
                }
                struct Structured: Decodable {
                    struct Directory: Decodable {
                        let path: String
                        let access: String
                        let view: String
                    }
                    let path: String?
                    let access: String?
                    let view: String?
                    let directories: [Directory]?
                }
                struct Tool: Decodable {
                    let name: String
                }
                let protocolVersion: String?
                let tools: [Tool]?
                let content: [Content]?
                let structuredContent: Structured?
                let isError: Bool?
            }
            let jsonrpc: String
            let id: Int?
            let result: Result?
            let error: Failure?
        }

        func start(_ options: String...) throws -> Child {
            try Child([Programs.grantfs, "mcp"] + options, environment: fixture.environment)
        }

        func policy(_ text: String) throws -> String {
            let path = fixture.base + "/policy"
            try text.write(toFile: path, atomically: false, encoding: .utf8)
            chmod(path, 0o600)
            return path
        }

        func hear(_ program: Child) throws -> Answer {
            let line = try #require(program.line())
            let answer = try JSONDecoder().decode(Answer.self, from: Data(line.utf8))
            #expect(answer.jsonrpc == "2.0")
            return answer
        }

        func ask(_ program: Child, _ message: String) throws -> Answer {
            program.send(message)
            return try hear(program)
        }

        func call(_ tool: String, _ arguments: String, id: Int = 7) -> String {
            #"{"jsonrpc":"2.0","id":\#(id),"method":"tools/call","params":{"name":"\#(tool)","arguments":\#(arguments)}}"#
        }

        func request(_ path: String, _ access: String = "read-only", id: Int = 7) -> String {
            call("request_directory", #"{"path":"\#(path)","access":"\#(access)","reason":"to build it"}"#, id: id)
        }

        func expectNothingLeft() throws {
            try fixture.wait(until: "the mount and the grants are gone", within: 60) {
                try fixture.mountpoints.isEmpty && fixture.list("--all").isEmpty && fixture.status().mounts.isEmpty
            }
        }

        @Test("A program gets the access that its policy allows until its session ends")
        func policyAllows() throws {
            let denied = try fixture.source("work/secret")
            let file = try policy("deny = [\"\(denied)\"]\n[[allow]]\npath = \"\(source)/open\"\naccess = \"read-only\"\n")
            let open = try fixture.source("work/open")
            let other = try fixture.source("other")
            symlink(denied, open + "/way")
            let program = try start("--ask", "never", "--policy", file)
            let hello = try ask(
                program,
                #"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#
            )
            #expect(hello.result?.protocolVersion == "2025-03-26" && hello.id == 1)
            program.send(#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            let tools = try ask(program, #"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).result?.tools?.map(\.name)
            #expect(
                tools == [
                    "request_directory", "list_directories", "release_directory", "extend_directory", "narrow_directory", "explain_path",
                ])
            let granted = try ask(program, request(open)).result
            let place = try #require(granted?.structuredContent?.path)
            #expect(granted?.isError == false && granted?.structuredContent?.access == "read-only")
            #expect(FileManager.default.fileExists(atPath: place))
            #expect(!FileManager.default.createFile(atPath: place + "/new", contents: nil), "it is for reading")
            for path in [denied, source, open + "/way", other] {
                let answer = try ask(program, request(path)).result
                #expect(answer?.isError == true && answer?.structuredContent == nil, "\(path)")
            }
            #expect(try ask(program, request(open, "read-write")).result?.isError == true, "more than is allowed")
            #expect(try ask(program, call("list_directories", "{}")).result?.structuredContent?.directories?.map(\.path) == [place])
            #expect(try fixture.list().map(\.access) == ["read-only"])
            #expect(try ask(program, call("release_directory", #"{"path":"\#(place)"}"#)).result?.isError == false)
            #expect(!FileManager.default.fileExists(atPath: place))
            #expect(try ask(program, request(open)).result?.isError == false, "and again")
            program.closeInput()
            #expect(program.wait(within: 60) == 0)
            try expectNothingLeft()
        }

        @Test(
            "A tool in a sandbox of the session's view finds a requested directory",
            .enabled(if: Command.exists("bwrap"), "needs bwrap"))
        func tool() throws {
            let file = try policy("[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            try Data("hello\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            let program = try start("--ask", "never", "--policy", file)
            let granted = try #require(try ask(program, request(source, "read-write")).result?.structuredContent)
            let (view, path) = (try #require(granted.view), try #require(granted.path))
            let script = "cat \"$1/file\"; echo made > \"$1/new\"; cd /; cat /grants/work/new; ls \"$2\" 2>&1"
            let said = try fixture.grantfs("run", "--view", view, "--", "sh", "-c", script, "sh", path, source)
            #expect(said.lines.prefix(2) == ["hello", "made"] && said.status != 0, "\(said)")
        }

        @Test("A directory that a user took back is not granted again without a question", arguments: ["revoke", "remove", "set"])
        func takenBack(command: String) throws {
            let file = try policy("[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--ask", "never", "--policy", file)
            let granted = try #require(try ask(program, request(source, "read-write")).result?.structuredContent)
            let selector = ["--view", try #require(granted.view), "work"]
            try fixture.grantfs([command] + selector + (command == "set" ? ["--access", "read-only"] : [])).orThrow()
            #expect(try ask(program, request(source, "read-write")).result?.isError == true)
            #expect(try ask(program, request(source)).result?.isError == (command != "set"))
        }

        @Test("A release accepts the same path as its request")
        func releasedByWord() throws {
            let file = try policy("[[allow]]\npath = \"\(source)\"\naccess = \"read-only\"\n")
            symlink(source, fixture.base + "/link")
            let program = try Child(
                [Programs.grantfs, "mcp", "--ask", "never", "--policy", file],
                environment: fixture.environment.merging(["HOME": fixture.base]) { $1 })
            for word in [source + "/", source + "/../work", fixture.base + "/link", "~/source/work"] {
                #expect(try ask(program, request(word)).result?.isError == false, "\(word)")
                #expect(try ask(program, call("release_directory", #"{"path":"\#(word)"}"#)).result?.isError == false, "\(word)")
            }
        }

        @Test("`grantfs mcp` answers an id of more than 64 bits digit for digit")
        func longID() throws {
            let program = try start("--ask", "never")
            program.send(#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}"#)
            #expect(program.line()?.contains(#""id":123456789012345678901234567890,"#) == true)
        }

        @Test("A killed `grantfs mcp` leaves no grant, mount or working descriptor")
        func killed() throws {
            let file = try policy("[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--policy", file)
            let place = try #require(try ask(program, request(source, "read-write")).result?.structuredContent?.path)
            #expect(FileManager.default.createFile(atPath: place + "/new", contents: nil))
            let held = open(place + "/file", O_RDONLY)
            defer { close(held) }
            kill(program.pid, SIGKILL)
            try expectNothingLeft()
            var byte: UInt8 = 0
            #expect(pread(held, &byte, 1, 0) == -1, "nor by what was open")
        }

        @Test("A malformed request is answered with an error, and later ones are served")
        func badInput() throws {
            let program = try start("--ask", "never")
            for (text, code) in [
                ("{", -32700), ("[1]", -32600), (#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
                (#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
                (#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#, -32601), (#"{"jsonrpc":"2.0","id":1}"#, -32600),
                (call("nope", "{}"), -32602),
                (call("request_directory", "[]"), -32602), (call("request_directory", "{}"), -32602), (request("relative"), -32602),
                (request("/tmp", "everything"), -32602), (call("request_directory", #"{"path":"/tmp","access":null}"#), -32602),
                (call("request_directory", #"{"path":"/tmp","more":1}"#), -32602),
                (request("/tmp\\u0000/x"), -32700), (String(repeating: "[", count: 100_000), -32700),
                (String(repeating: "x", count: 5_000_000), -32600),
            ] {
                #expect(try ask(program, text).error?.code == code, "\(text.prefix(100))")
            }
            program.send("\n  ")
            #expect(try ask(program, #"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).id == 9)
            #expect(try ask(program, request(source)).result?.isError == true, "nobody is asked")
            #expect(try ask(program, request(fixture.store)).result?.isError == true)
            program.closeInput()
            #expect(program.wait(within: 60) == 0)
            #expect(fixture.mountpoints.isEmpty)
        }

        @Test(
            "A program gets the access that the user chooses on the terminal",
            .enabled(if: Command.exists("script"), "there is no script(1)"))
        func terminal() throws {
            let (terminal, server) = try onTerminal(Programs.grantfs)
            let question = { (message: String, answer: String) throws -> Answer in
                server.send(message)
                var seen = ""
                while let line = terminal.line(), !line.contains("asks for a directory") { seen += line }
                terminal.send(answer)
                return try hear(server)
            }
            #expect(try question(request(source, "read-write"), "n").result?.isError == true)
            #expect(try question(request(source, "read-write"), "r").result?.structuredContent?.access == "read-only")
            #expect(try question(request(source, "read-write"), "y").result?.structuredContent?.access == "read-write")
            #expect(try ask(server, request(source, "read-write")).result?.isError == false, "nobody is asked twice")
            // Who permits reading has not permitted writing again.
            let view = try #require(try ask(server, call("list_directories", "{}")).result?.structuredContent?.directories?.first?.view)
            try fixture.grantfs("set", "work", "--view", view, "--hide", "x").orThrow()
            try release(server, source)
            let policy = { (answer: String) throws in try question(request(source), answer).result?.structuredContent?.access }
            #expect(try policy("y") == "read-only")
            #expect(try question(request(source, "read-write"), "n").result?.isError == true)
            // Withdrawn, and the next question is another one.
            let other = try fixture.source("other")
            server.send(request(other, id: 20))
            while let line = terminal.line(), !line.contains("asks for a directory") {}
            // A client asks meanwhile whether this server lives.
            #expect(try ask(server, #"{"jsonrpc":"2.0","id":19,"method":"ping"}"#).id == 19)
            #expect(try ask(server, call("list_directories", "{}", id: 18)).result?.structuredContent?.directories?.count == 1)
            server.send(#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":20}}"#)
            #expect(try ask(server, #"{"jsonrpc":"2.0","id":21,"method":"ping"}"#).id == 21, "what was cancelled has no answer")
            // No user answers, and the program ends.
            server.send(request(other, id: 22))
            while let line = terminal.line(), !line.contains("asks for a directory") {}
            server.closeInput()
            #expect(terminal.wait(within: 60) == 0)
            try expectNothingLeft()
        }

        /// The program on a terminal, and its client.
        private func onTerminal(_ program: String) throws -> (terminal: Child, server: Child) {
            let (input, output) = (fixture.base + "/in", fixture.base + "/out")
            mkfifo(input, 0o600)
            mkfifo(output, 0o600)
            let command = "exec '\(program)' mcp <'\(input)' >'\(output)'"
            let terminal = try Child(["script", "-qec", command, "/dev/null"], environment: fixture.environment)
            let server = try Child(["sh", "-c", "exec 3>'\(input)'; cat '\(output)' 3>&- & cat >&3; exec 3>&-; wait"])
            return (terminal, server)
        }

        @Test(
            "An answer to a withdrawn question does not answer the next question",
            .enabled(if: Command.exists("script"), "there is no script(1)"))
        func exchangedQuestion() throws {
            fixture.switches["GRANTFS_TEST_READING_SECONDS"] = "3600"
            let (terminal, server) = try onTerminal(Programs.grantfsWithFaults)
            server.send(request(source, id: 1))
            while let line = terminal.line(), !line.contains("asks for a directory") {}
            server.send(#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
            server.send(request(try fixture.source("other"), id: 2))
            while let line = terminal.line(), !line.contains("asks for a directory") {}
            terminal.send("y")
            var seen = ""
            // The reply to a line ends without a newline, which the echo of the next line adds.
            try fixture.wait(until: "the answer is not taken") {
                terminal.send("")
                seen += terminal.line(within: 1) ?? ""
                return seen.contains("this is another one")
            }
            #expect(try ask(server, call("list_directories", "{}", id: 3)).result?.structuredContent?.directories?.isEmpty == true)
            server.closeInput()
            #expect(terminal.wait(within: 60) == 0)
            try expectNothingLeft()
        }
    }
}
