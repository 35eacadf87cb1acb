import Foundation
import Glibc
import TestSupport
import Testing

// Time, less access, and the reason for a refusal.
extension MountTests.MCPProtocolTests {
    private func granted(_ program: Child, _ arguments: String) throws -> Message {
        try ask(program, call("request_directory", arguments))
    }

    @Test("A directory is granted for the time that was asked for, and asked for again")
    func duration() throws {
        let program = try start("--ask", "never", policy: allowing)
        let first = try granted(program, #"{"path":"\#(source)","access":"read-write","duration":"2s"}"#)
        let place = try #require(first.text("result/structuredContent/path"))
        #expect(first.text("result/structuredContent/expires") != nil)
        try fixture.wait(until: "its time is over", within: 30) { !FileManager.default.fileExists(atPath: place + "/file") }
        // No person has taken it back.
        let second = try granted(program, #"{"path":"\#(source)","access":"read-write","duration":"1h"}"#)
        #expect(second.text("result/structuredContent/path") == place)
        let end = try #require(second.text("result/structuredContent/expires"))
        #expect(try ask(program, call("extend_directory", #"{"path":"work","duration":"30m"}"#)).code == -32602)
        let longer = try ask(program, call("extend_directory", #"{"path":"work","duration":"3h"}"#))
        #expect(try #require(longer.text("result/structuredContent/expires")) > end && longer.access == "read-write")
        for wrong in ["soon", "0s", "-1h", "2030-01-01", "99999999999999999999d"] {
            #expect(try granted(program, #"{"path":"\#(source)","duration":"\#(wrong)"}"#).code == -32602, "\(wrong)")
        }
        try self.end(program)
    }

    @Test("A person's shorter time is not extended without a question")
    func shortened() throws {
        let program = try start("--ask", "never", policy: allowing)
        let view = try #require(try granted(program, wanted()).text("result/structuredContent/view"))
        try fixture.grantfs("set", "work", "--view", view, "--expires", "1h").orThrow()
        let extended = try ask(program, call("extend_directory", #"{"path":"work"}"#))
        #expect(extended.isRefused)
        #expect(try fixture.list("--view", view).first?.expires != nil)
        try end(program)
    }

    @Test("Wider access lasts no longer than a person decided for either")
    func widened() throws {
        let program = try start("--ask", "client")
        try session(program)
        func expires(after arguments: String) throws -> String? {
            program.send(call("request_directory", #"{"path":"\#(source)",\#(arguments)}"#))
            let id = try #require(try hear(program).text("id"))
            let decision = arguments.contains("write") ? "read-write" : "read-only"
            let answer = #"{"action":"accept","content":{"decision":"\#(decision)"}}"#
            let granted = try ask(program, #"{"jsonrpc":"2.0","id":"\#(id)","result":\#(answer)}"#)
            #expect(granted.access == decision)
            return granted.text("result/structuredContent/expires")
        }
        #expect(try expires(after: #""access":"read-only""#) == nil)
        #expect(try expires(after: #""access":"read-write","duration":"1h""#) != nil)
        #expect(try !ask(program, call("release_directory", #"{"path":"work"}"#)).isRefused)
        let first = try #require(try expires(after: #""access":"read-only","duration":"1h""#))
        #expect(try expires(after: #""access":"read-write""#) == first)
        try end(program)
    }

    @Test("A person's change during an extension ends the grant")
    func extendedMeanwhile() throws {
        let stops = try StopPoints(fixture)
        let program = try start("--ask", "never", policy: allowing, with: Programs.grantfsWithFaults)
        let first = try granted(program, #"{"path":"\#(source)","access":"read-write","duration":"1h"}"#)
        let view = try #require(first.text("result/structuredContent/view"))
        stops.arm("extending")
        program.send(call("extend_directory", #"{"path":"work"}"#))
        try stops.awaitStop("extending")
        try fixture.grantfs("set", "work", "--view", view, "--expires", "5m").orThrow()
        stops.goOn("extending")
        #expect(try hear(program).isRefused)
        #expect(try fixture.list("--view", view).isEmpty)
        try end(program)
    }

    @Test("A person decides on an extension, also for less")
    func extended() throws {
        let program = try start("--ask", "client")
        try session(program)
        let ask = { (message: String, decision: String) throws in
            program.send(message)
            let question = try hear(program)
            let id = try #require(question.text("id"))
            return try self.ask(
                program, #"{"jsonrpc":"2.0","id":"\#(id)","result":{"action":"accept","content":{"decision":"\#(decision)"}}}"#)
        }
        let first = try ask(call("request_directory", #"{"path":"\#(source)","access":"read-write","duration":"1h"}"#), "read-write")
        #expect(first.access == "read-write")
        #expect(try ask(call("extend_directory", #"{"path":"work","duration":"2h"}"#), "no").isRefused)
        let longer = try ask(call("extend_directory", #"{"path":"work"}"#), "read-only")
        #expect(longer.access == "read-only" && longer["result/structuredContent/expires"] is NSNull)
        try end(program)
    }

    @Test("A program gives back part of a grant, and no more comes with that")
    func narrowed() throws {
        let program = try start("--ask", "never", policy: allowing)
        let place = try #require(try granted(program, wanted()).text("result/structuredContent/path"))
        let held = open(place + "/file", O_RDWR)
        defer { close(held) }
        let narrow = { (arguments: String) in
            try ask(program, call("narrow_directory", #"{"path":"work",\#(arguments)}"#))
        }
        #expect(try narrow(#""hide":["file"],"duration":"1h""#).access == "read-write")
        #expect(!FileManager.default.fileExists(atPath: place + "/file"))
        var byte: UInt8 = 0
        #expect(pread(held, &byte, 1, 0) == -1, "nor by what was open")
        #expect(try narrow(#""access":"read-only""#).access == "read-only")
        for wrong in [#""access":"read-write""#, #""duration":"2h""#, #""hide":["!file"]"#, #""hide":[]"#] {
            #expect(try narrow(wrong).code == -32602, "\(wrong)")
        }
        #expect(!FileManager.default.fileExists(atPath: place + "/file"))
        try end(program)
    }

    @Test("A narrowing at the same time as a person's change takes nothing of it back")
    func narrowedMeanwhile() throws {
        let stops = try StopPoints(fixture)
        let program = try start("--ask", "never", policy: allowing, with: Programs.grantfsWithFaults)
        let granted = try granted(program, wanted())
        let (view, place) = (granted.text("result/structuredContent/view") ?? "", granted.text("result/structuredContent/path") ?? "")
        stops.arm("narrowing")
        program.send(call("narrow_directory", #"{"path":"work","protect":["x"],"duration":"1h"}"#))
        try stops.awaitStop("narrowing")
        try fixture.grantfs("set", "work", "--view", view, "--hide", "file", "--expires", "30m").orThrow()
        stops.goOn("narrowing")
        #expect(try hear(program).isRefused)
        #expect(!FileManager.default.fileExists(atPath: place + "/file"))
        let rules = try fixture.grantfs("list", "--view", view, "--json").orThrow().text
        #expect(rules.contains(#""hide":["file"],"protect":[]"#), "\(rules)")
        try end(program)
    }

    @Test("A directory that was often released is granted again by a person alone")
    func released() throws {
        let program = try start("--ask", "never", policy: allowing)
        for turn in 0..<9 {
            #expect(try granted(program, wanted()).isRefused == (turn == 8), "\(turn)")
            if turn < 8 { #expect(try !ask(program, call("release_directory", #"{"path":"work"}"#)).isRefused) }
        }
        try end(program)
    }

    @Test("A link to a denied or hidden place tells nothing of that place")
    func linked() throws {
        let denied = try fixture.source("denied")
        try Data().write(to: URL(fileURLWithPath: denied + "/file"))
        mkdir(denied + "/there", 0o755)
        let program = try start("--ask", "never", policy: "deny = [\"\(denied)\"]\n" + allowing)
        var texts = Set<String>()
        for (number, target) in ["there", "file", "none", "file/x", "there/none"].enumerated() {
            let link = "\(source)/link\(number)"
            symlink("\(denied)/\(target)", link)
            let content = try granted(program, #"{"path":"\#(link)"}"#)["result/content"] as? [[String: Any]]
            texts.insert(content?.first?["text"] as? String ?? target)
        }
        #expect(texts.count == 1, "\(texts)")
        try end(program)
    }

    @Test("A program learns why it may not use a path, and nothing of the disk")
    func explained() throws {
        let denied = fixture.base + "/denied"
        let program = try start(
            "--ask", "never", policy: "deny = [\"\(denied)\"]\nhide = [\"secret/\"]\nprotect = [\"kept\"]\n" + allowing)
        let place = try #require(try granted(program, wanted()).text("result/structuredContent/path"))
        let explain = { (path: String) throws in
            try ask(program, call("explain_path", #"{"path":"\#(path)"}"#))
        }
        for top in [source, place] {
            for (name, verdict) in [("/file", "read-write"), ("/none", "read-write"), ("/kept/x", "protected"), ("/secret", "hidden")] {
                let answer = try explain(top + name)
                #expect(answer.text("result/structuredContent/verdict") == verdict, "\(top + name)")
                #expect(answer.text("result/structuredContent/path") == place + name)
            }
        }
        #expect(try explain(source + "/secret").text("result/structuredContent/rule") == "--hide “secret/”")
        #expect(try explain(denied + "/x").text("result/structuredContent/verdict") == "denied")
        #expect(try explain("/usr").text("result/structuredContent/verdict") == "not-granted")
        #expect(try explain(source + "/../other").text("result/structuredContent/verdict") == "not-granted")
        #expect(try explain("relative").code == -32602)
        // The answer is the same for a directory that is there.
        mkdir(source + "/secret", 0o755)
        #expect(try explain(source + "/secret").text("result/structuredContent/verdict") == "hidden")
        try end(program)
    }
}
