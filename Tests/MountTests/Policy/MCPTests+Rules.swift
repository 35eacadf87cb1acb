import Foundation
import Glibc
import TestSupport
import Testing

// The rules of a policy, and what a user changes meanwhile.
extension MountTests.AskingByMCP {
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

    func release(_ program: Child, _ path: String) throws {
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

    @Test("A request is judged again when it gets its turn among all sessions", arguments: ["moved", "revoked", "above"])
    func judgedAgain(how: String) throws {
        let inner = try fixture.source("work/inner")
        let allow = "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n"
        let file = try policy("protect = [\".git/hooks\"]\n" + allow)
        let stops = try StopPoints(fixture)
        let program = try Child([Programs.grantfsWithFaults, "mcp", "--ask", "never", "--policy", file], environment: fixture.environment)
        let other = try start("--ask", "never", "--policy", file)
        let view = try #require(try ask(program, request(inner)).result?.structuredContent?.view)
        if how != "revoked" { try release(program, inner) }
        stops.arm("granting")
        program.send(request(inner, "read-write"))
        try stops.awaitStop("granting")
        switch how {
        case "moved": try #require(rename(inner, source + "/.git") == 0 && mkdir(inner, 0o700) == 0)
        case "revoked": try fixture.grantfs("revoke", "--view", view, "inner").orThrow()
        default: #expect(try ask(other, request(source, "read-write")).result?.isError == false)
        }
        stops.goOn("granting")
        #expect(try hear(program).result?.isError == true)
        #expect(try fixture.list().allSatisfy { $0.name != "inner" || $0.access == "read-only" })
    }

    @Test("Two sessions do not judge at once")
    func oneAtATime() throws {
        let inner = try fixture.source("work/inner")
        let allow = "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n"
        let file = try policy("protect = [\".git/hooks\"]\n" + allow)
        let stops = try StopPoints(fixture)
        let program = try Child([Programs.grantfsWithFaults, "mcp", "--ask", "never", "--policy", file], environment: fixture.environment)
        let other = try start("--ask", "never", "--policy", file)
        stops.arm("apart")
        program.send(request(inner, "read-write"))
        try stops.awaitStop("apart")
        other.send(request(source, "read-write"))
        #expect(other.line(within: 1) == nil, "it waits for its turn")
        stops.goOn("apart")
        #expect(try hear(program).result?.isError == false)
        #expect(try hear(other).result?.isError == true)
    }

    @Test("A change is not forgotten if the log drops its entry", .enabled(if: Command.exists("sqlite3"), "needs sqlite3"))
    func droppedEntry() throws {
        let allow = "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n"
        let program = try start("--ask", "never", "--policy", try policy(allow))
        let view = try #require(try ask(program, request(source)).result?.structuredContent?.view)
        try fixture.grantfs("set", "--view", view, "work", "--hide", "x").orThrow()
        try release(program, source)
        let script = "DELETE FROM log WHERE number < (SELECT max(number) FROM log)"
        try Command.run(["sqlite3", "-cmd", ".timeout 10000", fixture.store + "/grants.sqlite", script]).orThrow()
        #expect(try ask(program, request(source)).result?.isError == true)
    }
}
