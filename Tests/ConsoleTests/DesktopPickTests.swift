import Foundation
import TestSupport
import Testing

/// The desktop's file chooser, played by a program on a session bus of its own.
@Suite(.enabled(if: Machine.offers("dbus-daemon"), Comment(rawValue: Machine.needs("dbus-daemon"))))
struct DesktopPickTests {
    private final class Desktop {
        let fixture: MountFixture
        private let bus: Child
        private var portal: Child?

        init() throws {
            fixture = try MountFixture()
            let socket = "unix:path=\(fixture.base)/bus"
            bus = try Child(
                ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address", "--address=\(socket)"], separateErrors: true)
            guard bus.line() != nil else { throw TestFailure("no session bus") }
            fixture.switches = ["DBUS_SESSION_BUS_ADDRESS": socket, "XDG_STATE_HOME": fixture.base + "/state"]
        }

        deinit {
            portal?.kill()
            bus.kill()
        }

        func play(version: Int = 4, _ reply: String, _ uris: String...) throws -> Child {
            let portal = try Child([Programs.fakePortal, "\(version)", reply] + uris, environment: fixture.switches)
            self.portal = portal
            try portal.expect("ready")
            return portal
        }
    }

    @Test func whatIsChosenIsGranted() throws {
        let desktop = try Desktop()
        let (one, two) = (try desktop.fixture.source("one"), try desktop.fixture.source("two words"))
        let portal = try desktop.play("0", "file://" + one, "file://" + two.replacingOccurrences(of: " ", with: "%20"))
        let output = try desktop.fixture.grantfs("pick", desktop.fixture.base, "--desktop", "--read-only", "--view", "ci", "--json")
            .orThrow()
        for line in ["directory=1", "multiple=1", "current_folder=\(desktop.fixture.base)$"] { try portal.expect(line) }
        let printed: [GrantDocument] = try output.decoded()
        #expect(printed.map(\.name) == ["one", "two words"])
        let grants = try desktop.fixture.list()
        #expect(grants.map(\.path) == [one, two] && grants.allSatisfy { $0.access == "read-only" && $0.view == "ci" })
    }

    @Test func nothingIsGrantedUnlessEverythingCanBe() throws {
        let desktop = try Desktop()
        let one = try desktop.fixture.source("one")
        _ = try desktop.play("0", "file://" + one, "file://" + desktop.fixture.base)
        let refused = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(refused.status == 1 && refused.errors.contains("it holds the store"))
        #expect(try desktop.fixture.list().isEmpty)
    }

    @Test func whatIsCancelledChangesNothing() throws {
        let desktop = try Desktop()
        _ = try desktop.play("1")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors == "grantfs: nothing was granted\n")
        #expect(!FileManager.default.fileExists(atPath: desktop.fixture.store))
    }

    @Test func anAnswerOfSomebodyElseIsNone() throws {
        let desktop = try Desktop()
        _ = try desktop.play("forge")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors == "grantfs: nothing was granted\n")
    }

    @Test func aPortalThatEndsIsNotWaitedFor() throws {
        let desktop = try Desktop()
        _ = try desktop.play("leave")
        let output = try desktop.fixture.grantfs("pick", "--desktop")
        #expect(output.status == 1 && output.errors.contains("it ended without an answer"))
    }

    @Test func whoCannotBeAskedIsNamed() throws {
        let desktop = try Desktop()
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
