import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite("Requests over `grantfs mcp`")
    struct AskingByMCP {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
            try Data("granted\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
        }

        private struct Answer: Decodable {
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

        private func start(_ options: String...) throws -> Child {
            try Child([Programs.grantfs, "mcp"] + options, environment: fixture.environment)
        }

        private func policy(_ text: String) throws -> String {
            let path = fixture.base + "/policy"
            try text.write(toFile: path, atomically: false, encoding: .utf8)
            chmod(path, 0o600)
            return path
        }

        private func hear(_ program: Child) throws -> Answer {
            let line = try #require(program.line())
            let answer = try JSONDecoder().decode(Answer.self, from: Data(line.utf8))
            #expect(answer.jsonrpc == "2.0")
            return answer
        }

        private func ask(_ program: Child, _ message: String) throws -> Answer {
            program.send(message)
            return try hear(program)
        }

        private func call(_ tool: String, _ arguments: String, id: Int = 7) -> String {
            #"{"jsonrpc":"2.0","id":\#(id),"method":"tools/call","params":{"name":"\#(tool)","arguments":\#(arguments)}}"#
        }

        private func request(_ path: String, _ access: String = "read-only", id: Int = 7) -> String {
            call("request_directory", #"{"path":"\#(path)","access":"\#(access)","reason":"to build it"}"#, id: id)
        }

        private func expectNothingLeft() throws {
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
            #expect(tools == ["request_directory", "list_directories", "release_directory"])
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

        @Test("The policy's rules hold for each directory, and a request adds to them")
        func rules() throws {
            for name in [".env", "key", "kept", "own"] { try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/" + name)) }
            let file = try policy(
                "hide = [\".env*\"]\nprotect = [\"kept\"]\n[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--ask", "never", "--policy", file, "--hide", "key")
            func ask(with rules: String) throws -> Answer {
                try self.ask(program, call("request_directory", #"{"path":"\#(source)","access":"read-write",\#(rules)}"#))
            }
            let longest = String(repeating: "a", count: 4_096)
            let refused = [
                #""hide":["!.env"]"#, #""protect":["!kept"]"#, #""only":["!x"]"#, #""hide":"x""#, #""hide":[1]"#, #""hide":[""]"#,
                #""hide":["a\u0000"]"#, #""protect":[".env*"]"#, #""hide":["\#(longest)"]"#,
                #""hide":[\#((0..<5_000).map { "\"p\($0)\"" }.joined(separator: ","))]"#,
            ]
            for rules in refused {
                #expect(try ask(with: rules).error != nil, "\(rules.prefix(40))")
                #expect(try fixture.list().isEmpty, "nothing is granted")
            }
            // A pattern for any depth that is written many times is one.
            let deep = source + String(repeating: "/x", count: 1_500)
            let many = String(repeating: "**/", count: 1_300) + "q"
            let none = try self.ask(program, call("request_directory", #"{"path":"\#(deep)","hide":["\#(many)"]}"#))
            #expect(none.result?.isError == true)
            let place = try #require(try ask(with: #""hide":["own"],"protect":["file"]"#).result?.structuredContent?.path)
            #expect(try FileManager.default.contentsOfDirectory(atPath: place).sorted() == ["file", "kept"])
            for name in ["kept", "file"] {
                #expect(open(place + "/" + name, O_WRONLY) == -1 && errno == EROFS)
            }
            // A grant keeps its rules when it is requested again.
            #expect(try ask(with: #""only":["own"]"#).result?.isError == false)
            #expect(try FileManager.default.contentsOfDirectory(atPath: place).sorted() == ["file", "kept"])
            // What alone is visible is not widened.
            let other = try start("--ask", "never", "--policy", file, "--only", "file")
            let only = call("request_directory", #"{"path":"\#(source)","only":["key"]}"#)
            #expect(try self.ask(other, only).error?.code == -32602)
        }

        @Test("The policy's rules hold for a directory that is requested by itself")
        func places() throws {
            for name in ["secret/keys", ".git/hooks", ".git/info", "a/b", "a/private"] { _ = try fixture.source("work/" + name) }
            for name in [".git/hooks/pre", ".git/config", "a/b/key"] {
                try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/" + name))
            }
            let rules = "hide = [\"secret\", \"/a/b/key\"]\nprotect = [\".git/hooks\", \"**/.git/config\"]\n"
            let file = try policy(rules + "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--ask", "never", "--policy", file, "--hide", "a/private")
            for name in ["secret", "secret/keys", "secret/none", "a/private"] {
                let said = try ask(program, request(source + "/" + name)).result
                #expect(said?.isError == true && said?.content?.first?.text == "Not granted: the policy denies it.", "\(name)")
            }
            #expect(try ask(program, request(source + "/.git/hooks", "read-write")).result?.isError == true)
            #expect(try ask(program, request(source + "/.git/hooks")).result?.isError == false)
            #expect(try ask(program, request(source + "/.git/hooks", "read-write")).result?.isError == true, "nor is it widened")
            let refused = try ask(program, request(source + "/.git", "read-write")).result
            #expect(
                refused?.isError == true && refused?.content?.first?.text.contains("lies in it") == true, "\(String(describing: refused))")
            try release(program, source + "/.git/hooks")
            let git = try #require(try ask(program, request(source + "/.git", "read-write")).result?.structuredContent?.path)
            #expect(FileManager.default.createFile(atPath: git + "/info/new", contents: nil))
            for name in ["/config", "/hooks/pre", "/hooks/new"] {
                #expect(open(git + name, O_WRONLY | O_CREAT, 0o600) == -1 && errno == EROFS, "\(name)")
            }
            let inner = try #require(try ask(program, request(source + "/a/b", "read-write")).result?.structuredContent?.path)
            #expect(try FileManager.default.contentsOfDirectory(atPath: inner).isEmpty)
            #expect(open(inner + "/key", O_WRONLY | O_CREAT, 0o600) == -1 && errno == EACCES)
        }

        @Test("A directory in a granted one is reached through that grant")
        func nested() throws {
            for name in ["a/b", "out", "hid", ".git/hooks"] { _ = try fixture.source("work/" + name) }
            let rules = "hide = [\"hid\"]\nprotect = [\".git/hooks\"]\n"
            let file = try policy(rules + "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--ask", "never", "--policy", file)
            let out = try #require(try ask(program, request(source + "/out", "read-write")).result?.structuredContent?.path)
            #expect(try ask(program, request(source, "read-write")).result?.isError == true, "out would be in it")
            let reading = try #require(try ask(program, request(source)).result?.structuredContent?.path)
            #expect(try ask(program, request(source, "read-write")).result?.isError == true, "nor is it widened")
            #expect(try ask(program, request(source + "/a")).result?.structuredContent?.path == reading + "/a")
            #expect(FileManager.default.createFile(atPath: out + "/made", contents: nil))
            let again = try ask(program, request(source + "/a/b", "read-write")).result?.structuredContent
            #expect(again?.access == "read-write" && again?.path != reading + "/a/b")
            for name in ["out", "a/b"] { try release(program, source + "/" + name) }
            let above = try #require(try ask(program, request(source, "read-write")).result?.structuredContent?.path)
            #expect(try ask(program, request(source + "/a/b", "read-write")).result?.structuredContent?.path == above + "/a/b")
            #expect(try ask(program, request(source + "/.git/hooks")).result?.structuredContent?.path == above + "/.git/hooks")
            for name in ["hid", ".git/hooks"] {
                #expect(try ask(program, request(source + "/" + name, "read-write")).result?.isError == true, "\(name)")
            }
            // What another session has is not made movable either.
            let other = try start("--ask", "never", "--policy", file)
            let refused = try ask(other, request(source + "/a", "read-write")).result
            #expect(refused?.content?.first?.text.contains("in another session") == true, "\(String(describing: refused))")
            try release(program, source)
            #expect(try ask(other, request(source + "/a", "read-write")).result?.isError == false)
            #expect(try ask(program, request(source, "read-write")).result?.isError == true)
            try "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n".write(
                toFile: fixture.base + "/plain", atomically: false, encoding: .utf8)
            let plain = try start("--ask", "never", "--policy", fixture.base + "/plain")
            #expect(try ask(plain, request(source, "read-write")).result?.isError == true, "a session without rules neither")
        }

        @Test(
            "A directory on a filesystem below is not granted beside one above for writing",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func nestedFilesystem() throws {
            let below = try fixture.source("work/git/m")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "mode=0700", "none"], at: below)
            mkdir(below + "/k", 0o700)
            let allow = "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n"
            let program = try start("--ask", "never", "--policy", try policy("protect = [\".git/m/k/x\"]\n" + allow))
            for (first, second) in [(source, below + "/k"), (below + "/k", source)] {
                #expect(try ask(program, request(first, "read-write")).result?.isError == false)
                #expect(try ask(program, request(second, "read-write")).result?.isError == true, "\(second)")
                try release(program, first)
            }
        }

        @Test("A request does not tell what a denied or hidden directory contains")
        func oracle() throws {
            for name in ["hid/there", "no/there", "open"] { _ = try fixture.source("work/" + name) }
            symlink(source + "/open", source + "/hid/link")
            let allow = "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n"
            let program = try start("--ask", "never", "--policy", try policy("deny = [\"\(source)/no\"]\nhide = [\"hid\"]\n" + allow))
            for above in ["hid", "no"] {
                for name in ["there", "none"] {
                    #expect(try ask(program, request("\(source)/\(above)/\(name)/../../open")).result?.isError == false, "\(above)/\(name)")
                }
            }
            for name in ["there", "none", "link"] {
                #expect(
                    try ask(program, request(source + "/hid/" + name)).result?.content?.first?.text == "Not granted: the policy denies it.")
            }
        }

        private func release(_ program: Child, _ path: String) throws {
            #expect(try ask(program, call("release_directory", #"{"path":"\#(path)"}"#)).result?.isError == false, "\(path)")
        }

        @Test("What a user changed is not granted again after its release, nor from above")
        func changesOutlastRelease() throws {
            let inner = try fixture.source("work/inner")
            for name in ["own", "inner/own"] { try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/" + name)) }
            let file = try policy("[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n")
            let program = try start("--ask", "never", "--policy", file)
            func get(_ path: String, _ access: String = "read-write") throws -> String? {
                try ask(program, request(path, access)).result?.structuredContent?.path
            }
            let granted = try #require(try ask(program, request(source, "read-write")).result?.structuredContent)
            let selector = ["--view", try #require(granted.view), "work"]
            try fixture.grantfs(["set"] + selector + ["--hide", "own", "--access", "read-only"]).orThrow()
            #expect(try get(inner) == nil, "it would be written by way of the directory below")
            let below = try #require(try get(inner, "read-only"))
            #expect(try FileManager.default.contentsOfDirectory(atPath: below).isEmpty, "what is hidden stays so")
            try release(program, source)
            for path in [source, inner] {
                for access in ["read-only", "read-write"] { #expect(try get(path, access) == nil, "\(path)") }
            }
            // A grant below that was changed is not undone by one above.
            let other = try start("--ask", "never", "--policy", file)
            let view = try #require(try ask(other, request(inner, "read-write")).result?.structuredContent?.view)
            try fixture.grantfs(["set", "--view", view, "inner", "--hide", "own"]).orThrow()
            #expect(try ask(other, request(source)).result?.isError == true)
            try fixture.grantfs(["revoke", "--view", view, "inner"]).orThrow()
            for access in ["read-only", "read-write"] {
                for path in [source, inner] { #expect(try ask(other, request(path, access)).result?.isError == true, "\(path)") }
            }
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
