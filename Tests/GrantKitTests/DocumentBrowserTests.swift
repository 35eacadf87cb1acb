import Foundation
import TestSupport
import Testing

/// docs/Examples/DocumentBrowser, as a user runs it: it picks a directory and works on a document
/// in the mount, while others write, rename, revoke and restore.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct TheDocumentBrowser {
    /// Sends a line. Returns the output up to and including `done` or `failed`, without news of
    /// others.
    private func ask(_ program: Child, _ line: String) throws -> [String] {
        program.send(line)
        var said: [String] = []
        while let line = program.line() {
            if line.hasPrefix("*") { continue }
            said.append(line)
            if line == "done" || line == "failed" { return said }
        }
        throw TestFailure("the program says no more, after \(said)")
    }

    private func wait(_ fixture: MountFixture, _ program: Child, _ line: String, _ wanted: [String]) throws {
        var last: [String] = []
        do {
            try fixture.wait(until: "it says so") {
                last = try ask(program, line)
                return last == wanted
            }
        } catch {
            throw TestFailure("“\(line)” does not give \(wanted), but \(last)")
        }
    }

    private func contents(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }

    @Test("DocumentBrowser keeps its text over renames and revocations")
    func day() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("letters")
        for (name, text) in [("a.txt", "first\n"), ("b.md", "second\n"), ("c.bin", "no text")] {
            try Data(text.utf8).write(to: URL(fileURLWithPath: source + "/" + name))
        }
        let mountpoint = try fixture.mount("documents", isNew: true)
        let program = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(try ask(program, "list") == ["done"])
        #expect(try ask(program, "pick \(source)/nowhere").last == "failed")
        #expect(try ask(program, "pick \(source)") == ["done"])
        #expect(try fixture.list().map(\.name) == ["letters"])
        #expect(try ask(program, "list") == ["1 a.txt, 6 bytes", "2 b.md, 7 bytes", "done"])
        #expect(try ask(program, "filter B") == ["done"] && ask(program, "list") == ["1 b.md, 7 bytes", "done"])
        #expect(try ask(program, "filter") == ["done"])

        #expect(try ask(program, "open 1") == ["done"])
        #expect(try ask(program, "type more") == ["done"])
        try fixture.wait(until: "it is saved by itself") { contents(source + "/a.txt") == "first\nmore\n" }
        try wait(fixture, program, "show", ["a: first / more", "state 0, unsaved false", "done"])

        // Another process writes through the mount with a claim, so the document is read again.
        try fixture.grantfs("coordinate", "write", mountpoint + "/letters/a.txt", "--", "sh", "-c", "echo theirs > \"$GRANTFS_PATH\"")
            .orThrow()
        try wait(fixture, program, "show", ["a: theirs", "state 0, unsaved false", "done"])

        // The directory is renamed on the host: the grant follows, and so does the document.
        let moved = fixture.base + "/source/renamed"
        try FileManager.default.moveItem(atPath: source, toPath: moved)
        #expect(try ask(program, "type after") == ["done"])
        try fixture.wait(until: "it is saved at the new place") { contents(moved + "/a.txt") == "theirs\nafter\n" }

        // Others make and rename documents.
        #expect(try ask(program, "rename 2 z.md") == ["done"])
        try fixture.grantfs("coordinate", "write", mountpoint + "/letters", "--", "sh", "-c", "echo > \"$GRANTFS_PATH/d.txt\"").orThrow()
        try wait(fixture, program, "list", ["1 a.txt, 13 bytes", "2 d.txt, 1 bytes", "3 z.md, 7 bytes", "done"])
        #expect(try ask(program, "delete 2") == ["done"])

        try fixture.revoke("letters", "--view", "documents")
        #expect(try ask(program, "type kept") == ["done"])
        #expect(try ask(program, "save").last == "failed")
        // savingError, and the text is here.
        try wait(fixture, program, "show", ["a: theirs / after / kept", "state 4, unsaved true", "done"])
        #expect(contents(moved + "/a.txt") == "theirs\nafter\n")
        #expect(try ask(program, "close") == ["failed"])
        try fixture.restore("letters")
        try fixture.wait(until: "it is saved once the grant is back") { contents(moved + "/a.txt") == "theirs\nafter\nkept\n" }
        try wait(fixture, program, "show", ["a: theirs / after / kept", "state 0, unsaved false", "done"])
        #expect(try ask(program, "close") == ["done"])

        #expect(try ask(program, "new a.txt").last == "failed")
        #expect(contents(moved + "/a.txt") == "theirs\nafter\nkept\n")
        #expect(try ask(program, "new new.txt") == ["done"] && contents(moved + "/new.txt") == "")
        #expect(try ask(program, "type end") == ["done"])
        program.closeInput()
        #expect(program.wait() == 0)
        #expect(contents(moved + "/new.txt") == "end\n", "what is not saved is saved when it is closed")
    }
}
