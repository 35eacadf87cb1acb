import Foundation
import TestSupport
import Testing

/// docs/Examples/TextEditor, as a user runs it, while others write, rename, revoke and restore.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct TheTextEditor {
    private struct Bench {
        let fixture: MountFixture
        /// The granted directory on the host, and in the mount.
        let source: String
        let inMount: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("letters")
            try Data("first\n".utf8).write(to: URL(fileURLWithPath: source + "/a.txt"))
            try fixture.grant(source)
            inMount = try fixture.mount() + "/letters"
        }

        func editor() throws -> Child { try Child([Programs.textEditor], environment: fixture.environment) }

        /// An editor that has opened the document in the mount.
        func opened() throws -> Child {
            let editor = try editor()
            #expect(try ask(editor, "open \(inMount)/a.txt") == ["done"])
            return editor
        }

        /// Sends a line. Returns the output up to and including `done` or `failed`, without news.
        func ask(_ editor: Child, _ line: String) throws -> [String] {
            editor.send(line)
            return try answer(editor)
        }

        func answer(_ editor: Child) throws -> [String] {
            var said: [String] = []
            while let line = editor.line() {
                if line.hasPrefix("*") { continue }
                said.append(line)
                if line == "done" || line == "failed" { return said }
            }
            throw TestFailure("the program says no more, after \(said)")
        }

        /// Waits for a line of the news.
        func news(_ editor: Child, _ wanted: String) throws {
            var said: [String] = []
            while let line = editor.line() {
                if line.hasPrefix(wanted) { return }
                said.append(line)
            }
            throw TestFailure("the program does not say “\(wanted)”, but \(said)")
        }

        func waitForShown(_ editor: Child, _ wanted: [String]) throws {
            var last: [String] = []
            do {
                try fixture.wait(until: "it is shown") {
                    last = try ask(editor, "show")
                    return last == wanted + ["done"]
                }
            } catch {
                throw TestFailure("it does not show \(wanted), but \(last)")
            }
        }

        func contents(_ name: String) -> String? { try? String(contentsOfFile: source + "/" + name, encoding: .utf8) }
        func overwrite(_ name: String, _ text: String) throws { try Data(text.utf8).write(to: URL(fileURLWithPath: source + "/" + name)) }
    }

    @Test("TextEditor saves changes by itself, and opens what it has saved after a restart")
    func life() throws {
        let bench = try Bench()
        let editor = try bench.editor()
        #expect(try bench.ask(editor, "open \(bench.inMount)/none") == ["failed"])
        #expect(try bench.ask(editor, "new \(bench.inMount)/b.txt") == ["done"])
        #expect(bench.contents("b.txt") == "")
        #expect(try bench.ask(editor, "type one") == ["done"])
        try bench.fixture.wait(until: "it is saved by itself") { bench.contents("b.txt") == "one\n" }
        try bench.waitForShown(editor, ["b: one", "normal, saved"])
        #expect(try bench.ask(editor, "type two") == ["done"] && bench.ask(editor, "close") == ["done"])
        #expect(bench.contents("b.txt") == "one\ntwo\n")
        #expect(try bench.ask(editor, "open \(bench.inMount)/a.txt") == ["done"] && bench.ask(editor, "type end") == ["done"])
        editor.closeInput()
        #expect(editor.wait() == 0)
        #expect(bench.contents("a.txt") == "first\nend\n", "what is not saved is saved at the end")

        let again = try bench.editor()
        #expect(try bench.ask(again, "open \(bench.inMount)/b.txt") == ["done"])
        #expect(try bench.ask(again, "show") == ["b: one / two", "normal, saved", "done"])
    }

    @Test("TextEditor reads what another program writes, and follows a move")
    func others() throws {
        let bench = try Bench()
        let editor = try bench.opened()
        let place = bench.inMount + "/a.txt"
        try bench.fixture.grantfs("coordinate", "write", place, "--", "sh", "-c", "echo theirs > \"$GRANTFS_PATH\"").orThrow()
        try bench.waitForShown(editor, ["a: theirs", "normal, saved"])
        let (old, new) = (bench.source + "/a.txt", bench.source + "/b.txt")
        try bench.fixture.grantfs("coordinate", "write", old, "--for", "moving", "--to", new, "--", "mv", old, new).orThrow()
        try bench.waitForShown(editor, ["b: theirs", "normal, saved"])
        #expect(try bench.ask(editor, "type mine") == ["done"])
        try bench.fixture.wait(until: "it is saved at the new place") { bench.contents("b.txt") == "theirs\nmine\n" }
        #expect(bench.contents("a.txt") == nil)
    }

    @Test("TextEditor overwrites no change of another program until the user decides", arguments: ["save", "revert"])
    func conflict(decision: String) throws {
        let bench = try Bench()
        let editor = try bench.opened()
        // Saves wait for the reader, and the writer does not ask it.
        let reader = try bench.fixture.holding("read", bench.source + "/a.txt")
        #expect(try bench.ask(editor, "type mine") == ["done"])
        try bench.overwrite("a.txt", "theirs\n")
        reader.closeInput()
        try bench.news(editor, "* in conflict")
        #expect(bench.contents("a.txt") == "theirs\n")
        #expect(try bench.ask(editor, "close") == ["failed"])
        #expect(bench.contents("a.txt") == "theirs\n")
        #expect(try bench.ask(editor, decision) == ["done"])
        try bench.waitForShown(editor, [decision == "save" ? "a: first / mine" : "a: theirs", "normal, saved"])
        #expect(bench.contents("a.txt") == (decision == "save" ? "first\nmine\n" : "theirs\n"))
        #expect(try bench.ask(editor, "close") == ["done"])
    }

    @Test("TextEditor keeps its text over a revocation, and saves it after a restoration")
    func revoked() throws {
        let bench = try Bench()
        let editor = try bench.opened()
        try bench.fixture.revoke("letters")
        #expect(try bench.ask(editor, "type kept") == ["done"])
        try bench.news(editor, "* not saved")
        #expect(
            try bench.ask(editor, "close") == ["failed"]
                && bench.ask(editor, "show").dropLast() == ["a: first / kept", "not saved, unsaved"])
        #expect(bench.contents("a.txt") == "first\n")
        try bench.fixture.restore("letters")
        try bench.fixture.wait(until: "it is saved") { bench.contents("a.txt") == "first\nkept\n" }
        try bench.waitForShown(editor, ["a: first / kept", "normal, saved"])
    }

    @Test("TextEditor ends with an error if a text cannot be saved")
    func lost() throws {
        let bench = try Bench()
        let editor = try bench.opened()
        try bench.fixture.revoke("letters")
        #expect(try bench.ask(editor, "type kept") == ["done"])
        editor.closeInput()
        #expect(editor.wait() == 1)
        #expect(bench.contents("a.txt") == "first\n")
    }

    @Test("TextEditor keeps the text of a document that is deleted, to be saved elsewhere")
    func deleted() throws {
        let bench = try Bench()
        let editor = try bench.opened()
        let place = bench.source + "/a.txt"
        try bench.fixture.grantfs("coordinate", "write", place, "--for", "deleting", "--", "rm", place).orThrow()
        try bench.news(editor, "* closed")
        #expect(bench.contents("a.txt") == nil)
        #expect(try bench.ask(editor, "save \(bench.inMount)/b.txt") == ["done"])
        #expect(bench.contents("b.txt") == "first\n" && bench.contents("a.txt") == nil)
        try bench.waitForShown(editor, ["b: first", "normal, saved"])
    }

    @Test("TextEditor gives up to open and to save a document when the user cancels it")
    func cancelled() throws {
        let bench = try Bench()
        let writer = try bench.fixture.holding("write", bench.source + "/a.txt")
        let editor = try bench.editor()
        editor.send("open \(bench.inMount)/a.txt")
        try bench.news(editor, "* closed, progress")
        editor.send("cancel")
        try bench.news(editor, "* error 3072")
        #expect(try bench.answer(editor) == ["failed"])
        writer.closeInput()
        #expect(writer.wait() == 0)
        #expect(try bench.ask(editor, "open \(bench.inMount)/a.txt") == ["done"])

        let reader = try bench.fixture.holding("read", bench.source + "/a.txt")
        #expect(try bench.ask(editor, "type more") == ["done"])
        try bench.news(editor, "* progress")
        editor.send("cancel")
        try bench.news(editor, "* error 3072")
        #expect(bench.contents("a.txt") == "first\n")
        reader.closeInput()
        #expect(reader.wait() == 0)
        #expect(try bench.ask(editor, "close") == ["done"])
        #expect(bench.contents("a.txt") == "first\nmore\n")
    }
}
