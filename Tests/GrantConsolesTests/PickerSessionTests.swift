import Foundation
import TestSupport
import Testing

/// The picker in a real terminal.
@Suite(.enabled(if: Machine.offers("tmux"), Comment(rawValue: Machine.needs("tmux"))))
struct PickerSessionTests {
    private func fixture() throws -> MountFixture {
        let fixture = try MountFixture(in: "/tmp")  // What screens show depends on the length of paths.
        for name in ["projects/alpha", "projects/beta", "projects/gamma/inner", "projects/.hidden", "projects/日本語", "projects/two words"] {
            _ = try fixture.source(name)
        }
        try FileManager.default.createSymbolicLink(atPath: fixture.base + "/source/projects/link", withDestinationPath: "alpha")
        try FileManager.default.createSymbolicLink(atPath: fixture.base + "/source/projects/nowhere", withDestinationPath: "missing")
        _ = FileManager.default.createFile(atPath: fixture.base + "/source/projects/file", contents: nil)
        return fixture
    }

    @Test("The picker names and grants two directories")
    func twoDirectoriesAreFoundNamedAndGranted() throws {
        let fixture = try fixture()
        try fixture.grant(fixture.source("other"), name: "beta")
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects", in: fixture, redirected: true)
        try terminal.expect("pick-browse")
        try terminal.send("al")
        try terminal.expect("pick-filter")
        try terminal.send("Space", "C-u")
        try terminal.send("Down", "Space")
        try terminal.expect("pick-marked")
        try terminal.send("Tab")
        try terminal.expect("pick-review")
        try terminal.send("Enter")
        try terminal.waitFor("nothing is granted: 1 of 2 cannot be")
        try terminal.send("Space", "Down", "n", "-2")
        try terminal.expect("pick-naming")
        try terminal.send("Enter")
        try terminal.resize(columns: 40, rows: 10)
        try terminal.expect("pick-narrow")
        try terminal.resize(columns: 80, rows: 24)
        try terminal.send("v", "C-u", "ci", "Enter")
        try terminal.expect("pick-ready")
        try terminal.send("Enter")
        #expect(try terminal.status() == 0)

        let grants = try fixture.list().filter { $0.name != "beta" }
        #expect(grants.map(\.name) == ["beta-2", "alpha"])
        #expect(grants.map(\.view) == ["ci", "default"])
        #expect(grants.map(\.access) == ["read-write", "read-only"])
        let printed = try String(contentsOfFile: terminal.outputFile, encoding: .utf8).split(separator: "\n").map(String.init)
        #expect(printed == [grants[1].id, grants[0].id])
    }

    @Test("The picker marks and grants a file whose path is typed")
    func aFileWhosePathIsTypedIsMarkedAndGranted() throws {
        let fixture = try fixture()
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects", in: fixture, redirected: true)
        try terminal.waitFor("alpha/")
        try terminal.send("./file", "Enter")
        try terminal.waitFor("the file is marked")
        try terminal.send("Tab")
        try terminal.waitForReview("1 directory is to be granted")
        try terminal.send("Enter")
        #expect(try terminal.status() == 0)
        #expect(try fixture.list().map(\.path) == [fixture.base + "/source/projects/file"])
        #expect(try fixture.grantfs("list", "--json").orThrow().text.contains("document"))
    }

    @Test("Chosen directories get the given rules, and a file is refused with them")
    func rules() throws {
        let fixture = try fixture()
        let line = "\"$GRANTFS\" pick \(fixture.base)/source/projects --hide '.env*' --protect .git"
        let terminal = try TerminalSession(line, in: fixture, columns: 160, redirected: true)
        try terminal.waitFor("alpha/")
        try terminal.send("./file", "Enter")
        try terminal.waitFor("the file is marked")
        try terminal.send("Tab")
        try terminal.waitForReview("1 directory is to be granted")
        try terminal.send("Enter")
        try terminal.waitFor("rules are for directories")
        #expect(try fixture.list().isEmpty)
        let second = try TerminalSession(line, in: fixture, columns: 160, redirected: true)
        try second.waitFor("alpha/")
        try second.send("alpha", "Space", "Tab")
        try second.waitForReview("1 directory is to be granted")
        try second.send("Enter")
        #expect(try second.status() == 0)
        #expect(try fixture.grantfs("list", "alpha", "--json").orThrow().text.contains(#""hide":[".env*"],"protect":[".git"]"#))
    }

    @Test("Escape in the picker changes nothing")
    func escapeChangesNothing() throws {
        let fixture = try fixture()
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects", in: fixture)
        try terminal.waitFor("alpha/")
        try terminal.send("Space", "Tab")
        try terminal.waitFor("1 directory is to be granted")
        try terminal.send("Escape")
        try terminal.waitFor("Space mark")
        try terminal.send("Escape")
        #expect(try terminal.status() == 1)
        // The page is gone, and the earlier line has not returned.
        try fixture.wait(until: "the line is all that is to be seen") { try terminal.screen() == "grantfs: nothing was granted\n" }
        #expect(!FileManager.default.fileExists(atPath: fixture.store))
    }

    @Test("The picker grants nothing if a name is taken meanwhile")
    func nothingIsGrantedWhenANameIsTakenMeanwhile() throws {
        let fixture = try fixture()
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects --json", in: fixture, redirected: true)
        try terminal.waitFor("alpha/")
        try terminal.send("Insert", "Insert", "Tab")
        try terminal.waitForReview("2 directories are to be granted")
        try fixture.grant(fixture.source("other"), name: "beta")
        try terminal.send("Enter")
        try terminal.waitFor("nothing is granted: ")
        #expect(try fixture.list().map(\.name) == ["beta"])
        try terminal.send("Down", "d", "Enter")
        #expect(try terminal.status() == 0)
        let printed = try JSONDecoder().decode([GrantDocument].self, from: Data(contentsOf: URL(fileURLWithPath: terminal.outputFile)))
        #expect(printed.map(\.name) == ["alpha"])
        #expect(try fixture.list().map(\.name) == ["alpha", "beta"])
    }

    @Test("The picker does not grant a directory that was replaced by a link")
    func whatHasBecomeALinkSinceItWasMarkedIsNotGranted() throws {
        let fixture = try fixture()
        let projects = fixture.base + "/source/projects"
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(projects)", in: fixture)
        try terminal.waitFor("alpha/")
        try terminal.send("Space")
        try terminal.waitFor("* alpha/")
        try FileManager.default.moveItem(atPath: projects + "/alpha", toPath: projects + "/moved")
        try FileManager.default.createSymbolicLink(atPath: projects + "/alpha", withDestinationPath: "beta")
        try terminal.send("Tab")
        try terminal.waitFor("! another directory is there by now: mark it again")
        try terminal.send("Enter")
        try terminal.waitFor("nothing is granted: 1 of 1 cannot be")
    }

    @Test("The picker starts where it was last")
    func itStartsWhereOneWasLast() throws {
        let fixture = try fixture()
        do {
            let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects/gamma", in: fixture)
            try terminal.waitFor("inner/")
            try terminal.send("Enter")
            try terminal.waitFor("no directories")
            try terminal.send("C-c")
            #expect(try terminal.status() == 1)
        }
        let terminal = try TerminalSession("\"$GRANTFS\" pick", in: fixture)
        try terminal.waitFor("BASE/source/projects/gamma/inner")
        let attributes = try FileManager.default.attributesOfItem(atPath: fixture.base + "/state/grantfs")
        #expect(attributes[.posixPermissions] as? Int == 0o700)
    }

    @Test("The picker grants without a writable state directory")
    func aStateThatCannotBeKeptIsNoFailure() throws {
        let fixture = try fixture()
        _ = FileManager.default.createFile(atPath: fixture.base + "/state", contents: nil)
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects", in: fixture, redirected: true)
        try terminal.waitFor("alpha/")
        try terminal.send("Tab")
        try terminal.waitForReview("1 directory is to be granted")
        try terminal.send("Enter")
        #expect(try terminal.status() == 0)
    }

    @Test(
        "A hanging directory does not block the picker",
        .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)),
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func aDirectoryThatDoesNotAnswerHoldsNobodyUp() throws {
        let fixture = try fixture()
        let source = try HangingSource("projects/hangs", in: fixture)
        defer { source.end() }
        try source.hang()
        let terminal = try TerminalSession("\"$GRANTFS\" pick \(fixture.base)/source/projects", in: fixture)
        try terminal.waitFor("hangs/")
        try terminal.send("hangs")
        try terminal.waitFor("1 of ")
        try terminal.send("Enter")
        // The page shows this during the second that a directory has to answer, not only after it.
        // Two looks in half a second see it.
        var (seen, before, now) = ("", Machine.milliseconds, Machine.milliseconds)
        try fixture.wait(until: "it is being read", within: 60) {
            (before, now) = (now, Machine.milliseconds)
            seen = try terminal.screen()
            return seen.contains("reading…") || seen.contains("does not answer")
        }
        #expect(seen.contains("reading…") || Machine.milliseconds - before > 500, "\(seen)")
        try terminal.waitFor("does not answer")
        try terminal.send("Escape")
        #expect(try terminal.status() == 1)
    }

    @Test("SIGTERM to the picker restores the terminal")
    func aSignalGivesTheTerminalBack() throws {
        let fixture = try fixture()
        let terminal = try TerminalSession(
            "sh -c 'echo $$ >\(fixture.base)/pid; exec \"$GRANTFS\" pick \(fixture.base)/source/projects'", in: fixture)
        try terminal.waitFor("alpha/")
        let pid = try #require(Int32(String(contentsOfFile: fixture.base + "/pid", encoding: .utf8).trimmingCharacters(in: .newlines)))
        kill(pid, SIGTERM)
        #expect(try terminal.status() == 128 + Int(SIGTERM))
        try fixture.wait(until: "the page is gone") { try !terminal.screen().contains("alpha") }
    }

    @Test("The picker without a terminal fails with the reason")
    func withoutATerminalItSaysSo() throws {
        let fixture = try fixture()
        let output = try Command.run(["setsid", "--wait", Programs.grantfs, "pick", fixture.base], environment: fixture.environment)
        #expect(output.status == 1)
        #expect(output.errors == "grantfs: the screen cannot be shown: there is no terminal\n")
    }
}
