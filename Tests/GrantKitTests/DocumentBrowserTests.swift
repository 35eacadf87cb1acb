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

    /// Sends a line. Returns whether a line of the news follows.
    private func news(_ program: Child, _ line: String, _ wanted: String) throws {
        program.send(line)
        while let line = program.line() { if line == wanted { return } }
        throw TestFailure("the program does not say “\(wanted)”")
    }

    @Test("DocumentBrowser imports, reveals and moves documents, over a restart")
    func importing() throws {
        let fixture = try MountFixture()
        let (letters, notes) = (try fixture.source("letters"), try fixture.source("notes"))
        for place in [letters + "/a.txt", notes + "/n.txt"] { try Data("first\n".utf8).write(to: URL(fileURLWithPath: place)) }
        mkdir(letters + "/sub", 0o755)
        let mountpoint = try fixture.mount("documents", isNew: true)
        let program = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(try ask(program, "pick \(letters)") == ["done"] && ask(program, "pick \(notes)") == ["done"])
        #expect(try ask(program, "list") == ["1 a.txt, 6 bytes", "2 n.txt, 6 bytes", "done"])

        // Of two documents of one name both are kept.
        let elsewhere = fixture.base + "/source/a.txt"
        try Data("other\n".utf8).write(to: URL(fileURLWithPath: elsewhere))
        #expect(try ask(program, "import \(elsewhere)") == ["imported as a 2.txt", "done"])
        #expect(contents(letters + "/a.txt") == "first\n" && contents(letters + "/a 2.txt") == "other\n")
        #expect(contents(elsewhere) == "other\n")
        #expect(try ask(program, "import \(elsewhere)none").last == "failed")

        // It is revealed in spite of the filter, by either of its names.
        #expect(try ask(program, "filter n.txt") == ["done"])
        #expect(try ask(program, "reveal \(letters)/a 2.txt") == ["shown as a 2.txt", "done"])
        #expect(try ask(program, "reveal \(mountpoint)/notes/n.txt") == ["shown as n.txt", "done"])
        #expect(try ask(program, "list") == ["1 a 2.txt, 6 bytes", "2 a.txt, 6 bytes", "3 n.txt, 6 bytes", "done"])
        #expect(try ask(program, "reveal \(elsewhere)").last == "failed")

        // A new document is made elsewhere, and moved here.
        try news(program, "make b.txt", "* made b.txt")
        #expect(contents(letters + "/b.txt") == "")
        try wait(
            fixture, program, "list", ["1 a 2.txt, 6 bytes", "2 a.txt, 6 bytes", "3 b.txt, 0 bytes", "4 n.txt, 6 bytes", "done"])

        // An open document follows its move into another directory.
        try news(program, "choose 2", "* progress")
        try wait(fixture, program, "show", ["a: first", "state 0, unsaved false", "done"])
        #expect(try ask(program, "rename 2 sub/moved.txt") == ["done"])
        try wait(fixture, program, "show", ["moved: first", "state 0, unsaved false", "done"])
        #expect(try ask(program, "type more") == ["done"])
        try fixture.wait(until: "it is saved at the new place") { contents(letters + "/sub/moved.txt") == "first\nmore\n" }
        #expect(contents(letters + "/a.txt") == nil)
        program.closeInput()
        #expect(program.wait() == 0)

        let again = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(
            try ask(again, "list") == [
                "1 a 2.txt, 6 bytes", "2 b.txt, 0 bytes", "3 n.txt, 6 bytes", "4 sub/moved.txt, 11 bytes", "done",
            ])
        #expect(try ask(again, "open 4") == ["done"])
        again.closeInput()
        #expect(again.wait() == 0)
    }

    @Test("DocumentBrowser closes a document that it deletes, and keeps its text")
    func deletesOpen() throws {
        let fixture = try MountFixture()
        let letters = try fixture.source("letters")
        for name in ["a.txt", "b.txt"] { try Data("first\n".utf8).write(to: URL(fileURLWithPath: letters + "/" + name)) }
        _ = try fixture.mount("documents", isNew: true)
        let program = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(try ask(program, "pick \(letters)") == ["done"] && ask(program, "open 1") == ["done"])
        #expect(try ask(program, "delete 1") == ["done"])
        #expect(contents(letters + "/a.txt") == nil)
        try wait(fixture, program, "list", ["1 b.txt, 6 bytes", "done"])
        #expect(try ask(program, "type more") == ["done"])
        // The state is “closed”: nothing of it is saved.
        #expect(try ask(program, "show") == ["a: first / more", "state 1, unsaved true", "done"])
        #expect(try ask(program, "close") == ["done"] && ask(program, "open 1") == ["done"])
        program.closeInput()
        #expect(program.wait() == 0)
        #expect(contents(letters + "/a.txt") == nil && contents(letters + "/b.txt") == "first\n")
    }

    @Test("DocumentBrowser lists the documents of directories that are picked at once")
    func picksSeveral() throws {
        let fixture = try MountFixture()
        let sources = try ["letters", "notes"].map { try fixture.source($0) }
        for source in sources { try Data("first\n".utf8).write(to: URL(fileURLWithPath: source + "/a.txt")) }
        let mountpoint = try fixture.mount("documents", isNew: true)
        let program = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(try ask(program, "pick \(sources[0]):\(fixture.base)/nowhere").last == "failed")
        #expect(try ask(program, "list") == ["done"])
        #expect(try ask(program, "pick " + sources.joined(separator: ":")) == ["done"])
        #expect(Set(try fixture.list().map(\.name)) == ["letters", "notes"])
        #expect(try ask(program, "list") == ["1 a.txt, 6 bytes", "2 a.txt, 6 bytes", "done"])
        // Each is open in the mount, and one that is revoked leaves the other.
        #expect(try ask(program, "open 2") == ["done"] && ask(program, "type more") == ["done"] && ask(program, "close") == ["done"])
        #expect(sources.map { contents($0 + "/a.txt") } == ["first\n", "first\nmore\n"])
        try fixture.revoke("letters", "--view", "documents")
        try fixture.wait(until: "it lists one") { try ask(program, "list").first == "1 a.txt, 11 bytes" }
        #expect(try String(contentsOfFile: mountpoint + "/notes/a.txt", encoding: .utf8) == "first\nmore\n")
    }

    @Test("DocumentBrowser reports a document that it cannot import")
    func failedImport() throws {
        let fixture = try MountFixture()
        let letters = try fixture.source("letters")
        _ = try fixture.mount("documents", isNew: true)
        let program = try Child([Programs.documentBrowser], environment: fixture.environment)
        #expect(try ask(program, "pick \(letters)") == ["done"])
        try fixture.revoke("letters", "--view", "documents")
        program.send("make b.txt")
        try fixture.wait(until: "it says so") { program.line()?.hasPrefix("* not made: ") == true }
        try fixture.restore("letters")
        try news(program, "make b.txt", "* made b.txt")
        #expect(contents(letters + "/b.txt") == "")
    }
}
