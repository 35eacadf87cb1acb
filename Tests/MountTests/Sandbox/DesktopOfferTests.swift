import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `run --offer --ask desktop`: a folder chooser is the question, and choosing the directory in it the consent.
    @Suite(
        .enabled(
            if: Machine.hasSandboxes && Machine.offers("dbus-daemon"),
            Comment(rawValue: "bubblewrap cannot make a sandbox here, or " + Machine.needs("dbus-daemon"))))
    struct RunOffersOnDesktop {
        private let desktop: FakeDesktop
        private let offered: String

        init() throws {
            desktop = try FakeDesktop()
            offered = try desktop.fixture.source("data")
            try "kept\n".write(toFile: offered + "/file", atomically: false, encoding: .utf8)
        }

        /// Without a terminal, and with an output into a pipe.
        private func run(_ script: String) throws -> Output {
            try desktop.fixture.grantfs("run", "--offer", offered, "--ask", "desktop", "--", "sh", "-c", script, within: 60)
        }

        private func isRefused(_ output: Output) -> Bool {
            output.errors.components(separatedBy: "Permission denied").count == 3 && output.lines.last == "end"
        }

        @Test("The directory is granted if it is chosen")
        func chosen() throws {
            let portal = try desktop.play("0", "file://" + offered)
            let output = try run("cat '\(offered)/file'; echo new >'\(offered)/new' && echo end")
            #expect(output.lines == ["kept", "end"], "\(output)")
            let title = "title=“cat” uses a directory that was offered to it: choose it to let the program read and change \(offered)"
            for line in ["directory=1", "multiple=1", "current_folder=\(offered)$", title] { try portal.expect(line) }
            #expect(try String(contentsOfFile: offered + "/new", encoding: .utf8) == "new\n")
        }

        @Test("A cancelled chooser refuses it, and there is one chooser")
        func cancelled() throws {
            let portal = try desktop.play("1")
            let output = try run("cat '\(offered)/file'; ls '\(offered)'; echo end")
            #expect(isRefused(output), "\(output)")
            portal.kill()
            let asked = try #require(portal.collected(within: 10)?.output)
            #expect(String(decoding: asked, as: UTF8.self).components(separatedBy: "title=").count == 2)
        }

        @Test("Another directory in the answer refuses it and is not granted", arguments: ["more", "data/below", "."])
        func other(_ name: String) throws {
            let other = try desktop.fixture.directory("source/" + name)
            try "hidden\n".write(toFile: other + "/hidden", atomically: false, encoding: .utf8)
            _ = try desktop.play("0", "file://" + other)
            let output = try run("cat '\(offered)/file'; ls '\(offered)'; cat '\(other)/hidden' 2>/dev/null; echo end")
            #expect(isRefused(output) && output.lines == ["end"], "\(output)")
            #expect(output.errors.contains("“data” is refused: another directory was chosen"), "\(output)")
        }

        @Test("A desktop that cannot be asked refuses it", arguments: ["none", "old", "leaves"])
        func notAsked(_ way: String) throws {
            switch way {
            case "old": _ = try desktop.play(version: 2, "0", "file://" + offered)
            case "leaves": _ = try desktop.play("leave")
            default: break
            }
            let output = try run("cat '\(offered)/file'; ls '\(offered)'; echo end")
            #expect(
                isRefused(output) && output.errors.contains("“data” is refused: the desktop's file chooser cannot be asked"), "\(output)")
        }
    }
}
