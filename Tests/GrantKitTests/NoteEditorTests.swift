import Foundation
import TestSupport
import Testing

/// docs/Examples/NoteEditor, as a user runs it, while other processes claim its files.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct TheNoteEditor {
    private func mounted() throws -> (MountFixture, source: String, inMount: String) {
        let fixture = try MountFixture()
        let source = try fixture.source("docs")
        try Data("first\n".utf8).write(to: URL(fileURLWithPath: source + "/note"))
        try fixture.grant(source)
        return (fixture, source, try fixture.mount() + "/docs")
    }

    private func editor(_ fixture: MountFixture) throws -> Child { try Child([Programs.noteEditor], environment: fixture.environment) }

    /// Sends a line, and returns the next one that does not report news of others.
    private func ask(_ editor: Child, _ line: String) throws -> String {
        editor.send(line)
        return try answer(editor)
    }

    /// An editor that has opened the note in a mount.
    private func opened() throws -> (fixture: MountFixture, source: String, editor: Child) {
        let (fixture, source, inMount) = try mounted()
        let editor = try editor(fixture)
        #expect(try ask(editor, "open \(inMount)/note") == "done")
        return (fixture, source, editor)
    }

    private func answer(_ editor: Child) throws -> String {
        while let line = editor.line() {
            if !line.hasPrefix("*") { return line }
        }
        throw TestFailure("the editor says nothing")
    }

    private func contents(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }

    @Test("NoteEditor opens, creates and saves in a mount and on the host")
    func life() throws {
        let (fixture, source, inMount) = try mounted()
        for directory in [inMount, source] {
            let editor = try editor(fixture)
            #expect(try ask(editor, "open \(directory)/note") == "done")
            #expect(try ask(editor, "show").hasPrefix("first"))
            #expect(try ask(editor, "type more") == "done")
            #expect(try ask(editor, "save") == "done")
            #expect(try ask(editor, "close") == "done")
            #expect(try ask(editor, "create \(directory)/note").hasPrefix("failed: "))
            let name = directory == source ? "host" : "mounted"
            #expect(try ask(editor, "create \(directory)/\(name)") == "done")
            #expect(contents("\(source)/\(name)") == "")
            #expect(try ask(editor, "open \(directory)/note").hasPrefix("failed: "))
            editor.closeInput()
            #expect(editor.wait() == 0)
        }
        #expect(contents(source + "/note") == "first\nmore\nmore\n")
    }

    @Test("NoteEditor waits for a claim of another process and never reads half a file")
    func waits() throws {
        let (fixture, source, inMount) = try mounted()
        let editor = try editor(fixture)
        let writer = try fixture.holding("write", source + "/note")
        try Data("half".utf8).write(to: URL(fileURLWithPath: source + "/note"))
        editor.send("open \(inMount)/note")
        #expect(editor.line(within: 0.3) == nil)
        try Data("whole\n".utf8).write(to: URL(fileURLWithPath: source + "/note"))
        writer.closeInput()
        #expect(try answer(editor) == "done")
        #expect(try ask(editor, "show") == "whole")

        let reader = try fixture.holding("read", "docs")
        #expect(try ask(editor, "type new") == "done")
        editor.send("save")
        pause(milliseconds: 300)
        #expect(contents(source + "/note") == "whole\n")
        reader.closeInput()
        #expect(try answer(editor) == "done")
        #expect(contents(source + "/note") == "whole\nnew\n")
    }

    @Test("NoteEditor keeps its text over a revocation and saves after it")
    func revoked() throws {
        let (fixture, source, editor) = try opened()
        #expect(try ask(editor, "type kept") == "done")
        let writer = try fixture.holding("write", "docs")
        editor.send("save")
        pause(milliseconds: 100)
        try fixture.revoke("docs")
        #expect(try answer(editor).hasPrefix("failed: "))
        writer.closeInput()
        #expect(try ask(editor, "save").hasPrefix("failed: "))
        #expect(contents(source + "/note") == "first\n")
        try fixture.restore("docs")
        #expect(try ask(editor, "save") == "done")
        #expect(contents(source + "/note") == "first\nkept\n")
    }

    @Test("NoteEditor gives up a save that another process holds up, and saves later")
    func cancelled() throws {
        let (fixture, source, editor) = try opened()
        // A reader asks for what was typed before.
        let reader = try fixture.holding("read", "docs")
        #expect(try ask(editor, "type more") == "done")
        #expect(try ask(editor, "save 0.3").hasPrefix("failed: "))
        #expect(contents(source + "/note") == "first\n")
        reader.closeInput()
        #expect(reader.wait() == 0)
        #expect(try ask(editor, "save") == "done")
        #expect(contents(source + "/note") == "first\nmore\n")
    }

    @Test("NoteEditor follows a moved file, and is told of its deletion")
    func movedAndDeleted() throws {
        let (fixture, source, editor) = try opened()
        try fixture.grantfs(
            "coordinate", "write", source + "/note", "--for", "moving", "--to", source + "/moved", "--", "mv", source + "/note",
            source + "/moved"
        ).orThrow()
        try expect(editor, "* moved to moved")
        #expect(try ask(editor, "type there") == "done")
        #expect(try ask(editor, "save") == "done")
        #expect(contents(source + "/moved") == "first\nthere\n")
        try fixture.grantfs("coordinate", "write", source + "/moved", "--for", "deleting", "--", "rm", source + "/moved").orThrow()
        try expect(editor, "* deleted")
    }

    @Test("NoteEditor finds its notes by bookmarks after a restart and renames")
    func restarted() throws {
        let (fixture, source, inMount) = try mounted()
        let recent = fixture.base + "/recent"
        func start() throws -> Child { try Child([Programs.noteEditor, recent], environment: fixture.environment) }
        func end(_ editor: Child) {
            editor.closeInput()
            #expect(editor.wait() == 0)
        }
        let first = try start()
        #expect(try ask(first, "recent") == "")
        #expect(try ask(first, "open \(inMount)/note") == "done" && ask(first, "close") == "done")
        #expect(try ask(first, "create \(source)/other") == "done" && ask(first, "type text") == "done" && ask(first, "save") == "done")
        end(first)

        // The granted directory and a note are renamed on the host while the program does not run.
        let moved = fixture.base + "/source/renamed"
        try FileManager.default.moveItem(atPath: source, toPath: moved)
        try FileManager.default.moveItem(atPath: moved + "/other", toPath: moved + "/letter")
        let second = try start()
        #expect(try ask(second, "recent") == "note / letter")
        #expect(try ask(second, "reopen 1") == "done" && ask(second, "show") == "first")
        #expect(try ask(second, "type more") == "done" && ask(second, "save") == "done" && ask(second, "close") == "done")
        #expect(contents(moved + "/note") == "first\nmore\n")
        #expect(try ask(second, "reopen 2") == "done" && ask(second, "show") == "text" && ask(second, "close") == "done")
        #expect(try ask(second, "reopen 3").hasPrefix("failed: "))

        // A note of a revoked grant is not found, and is found again when the grant is restored.
        try fixture.revoke("docs")
        #expect(try ask(second, "recent").hasPrefix("not found"))
        #expect(try ask(second, "reopen 1").hasPrefix("failed: "))
        end(second)
        try fixture.restore("docs")
        let third = try start()
        #expect(try ask(third, "recent") == "note / letter")
        #expect(try ask(third, "reopen 1") == "done" && ask(third, "show") == "first / more")
        end(third)
    }

    private func expect(_ editor: Child, _ line: String) throws {
        while let said = editor.line() { if said == line { return } }
        throw TestFailure("the editor does not say “\(line)”")
    }
}
