import Foundation
import TestSupport
import Testing

/// The desktop's file chooser, played by a program on its own session bus. That bus starts no other
/// service of the machine.
@Suite(.enabled(if: Machine.offers("dbus-daemon"), Comment(rawValue: Machine.needs("dbus-daemon"))))
struct DesktopPickTests {
    @Test("`pick --desktop` grants each chosen directory")
    func whatIsChosenIsGranted() throws {
        let desktop = try FakeDesktop()
        let (one, two) = (try desktop.fixture.source("one"), try desktop.fixture.source("two words"))
        let portal = try desktop.play("0", "file://" + one, "file://" + two.replacingOccurrences(of: " ", with: "%20"))
        let output = try desktop.fixture.grantfs(
            "pick", desktop.fixture.base, "--desktop", "--read-only", "--view", "ci", "--json", "--hide", ".env"
        )
        .orThrow()
        for line in ["directory=1", "multiple=1", "current_folder=\(desktop.fixture.base)$"] { try portal.expect(line) }
        let printed: [GrantDocument] = try output.decoded()
        #expect(printed.map(\.name) == ["one", "two words"])
        #expect(output.text.components(separatedBy: #""hide":[".env"]"#).count == 3, "\(output)")
        let grants = try desktop.fixture.list()
        #expect(grants.map(\.path) == [one, two] && grants.allSatisfy { $0.access == "read-only" && $0.view == "ci" })
    }

    @Test("`pick --desktop --files --as-directory` grants a file as a directory")
    func filesAreGranted() throws {
        let desktop = try FakeDesktop()
        let file = try desktop.fixture.source("papers") + "/two words.txt"
        try Data("text".utf8).write(to: URL(fileURLWithPath: file))
        let uri = "file://" + file.replacingOccurrences(of: " ", with: "%20")
        let portal = try desktop.play("0", uri)
        let output = try desktop.fixture.grantfs("pick", "--desktop", "--files", "--as-directory", "--json").orThrow()
        try portal.expect("directory=0")
        #expect(output.text.contains("\"document\"") && output.text.contains("\"asDirectory\":true"), "\(output)")
        #expect(try desktop.fixture.list().map(\.path) == [file])
        #expect(try desktop.fixture.grantfs("pick", "--files").status == 2)
        #expect(try desktop.fixture.grantfs("pick", "--desktop", "--as-directory").status == 2)
        #expect(try desktop.fixture.grantfs("pick", "--desktop", "--files", "--only", "x").status == 2)
    }

    @Test("A request by `grantfs mcp` is granted once a user chooses the directory")
    func aProgramsQuestionIsAnswered() throws {
        let desktop = try FakeDesktop()
        let one = try desktop.fixture.source("one")
        let portal = try desktop.play("0", "file://" + one)
        let program = try Child([Programs.grantfs, "mcp", "--ask", "desktop"], environment: desktop.fixture.environment)
        program.send(
            #"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"request_directory","arguments":{"path":"\#(one)"}}}"#)
        let answer = try #require(program.line())
        #expect(answer.contains(#""isError":false"#) && answer.contains(#""directory":"\#(one)","access":"read-only""#), "\(answer)")
        for line in ["directory=1", "multiple=1", "current_folder=\(one)$"] { try portal.expect(line) }
        #expect(try desktop.fixture.list().map(\.path) == [one])
        program.closeInput()
        #expect(program.wait(within: 60) == 0)
        #expect(try desktop.fixture.list("--all").isEmpty)
    }

    @Test("A cancelled dialog refuses the request of a program")
    func aProgramsQuestionIsRefused() throws {
        let desktop = try FakeDesktop()
        let one = try desktop.fixture.source("one")
        _ = try desktop.play("1")
        let program = try Child([Programs.grantfs, "mcp", "--ask", "desktop"], environment: desktop.fixture.environment)
        program.send(
            #"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"request_directory","arguments":{"path":"\#(one)"}}}"#)
        #expect(try #require(program.line()).contains(#""isError":true"#))
        program.closeInput()
        #expect(program.wait(within: 60) == 0)
    }

    @Test("`pick --desktop` grants nothing if one directory is refused")
    func nothingIsGrantedUnlessEverythingCanBe() throws {
        let desktop = try FakeDesktop()
        let one = try desktop.fixture.source("one")
        _ = try desktop.play("0", "file://" + one, "file://" + desktop.fixture.base)
        let refused = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(refused.status == 1 && refused.errors.contains("it holds the store"))
        #expect(try desktop.fixture.list().isEmpty)
    }

    @Test("A cancelled `pick --desktop` changes nothing")
    func whatIsCancelledChangesNothing() throws {
        let desktop = try FakeDesktop()
        _ = try desktop.play("1")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors == "grantfs: nothing was granted\n")
        #expect(!FileManager.default.fileExists(atPath: desktop.fixture.store))
    }

    @Test("`pick --desktop` ignores a forged answer")
    func anAnswerOfSomebodyElseIsNone() throws {
        let desktop = try FakeDesktop()
        _ = try desktop.play("forge")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors == "grantfs: nothing was granted\n")
    }

    @Test("`pick --desktop` fails if the portal ends without an answer")
    func aPortalThatEndsIsNotWaitedFor() throws {
        let desktop = try FakeDesktop()
        _ = try desktop.play("leave")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors.contains("it ended without an answer"))
    }

    @Test("`pick --desktop` names the missing portal or bus")
    func whoCannotBeAskedIsNamed() throws {
        let desktop = try FakeDesktop()
        let without = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(without.status == 1 && without.errors.contains("there is no desktop portal"))
        _ = try desktop.play(version: 2, "0")
        let old = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(old.status == 1 && old.errors.contains("chooses files alone"))
        desktop.fixture.switches["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=\(desktop.fixture.base)/nothing"
        let nobody = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(nobody.status == 1 && nobody.errors.contains("there is no session bus"))
    }
}
