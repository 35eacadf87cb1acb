import Foundation
import TestSupport
import Testing

/// The console in a real terminal, over a real mount.
@Suite(
    .enabled(if: Machine.offers("tmux"), Comment(rawValue: Machine.needs("tmux"))),
    .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)), .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
struct TopSessionTests {
    private let masks = [
        ("(?m) +\\S+ op/s.*$", "  N op/s"), ("at (BASE|…)\\S*", "at BASE"),
        ("…[A-Za-z0-9]{2}/source", "…XX/source"), ("\\([0-9a-f]{12}\\)", "(ID)"), ("(?m)^  \\d+ bash", "  PID bash"),
    ]

    /// Two grants in a mount, and a process that has a file of the first one open.
    private func situation() throws -> (MountFixture, Child) {
        let fixture = try MountFixture(in: "/tmp")  // What screens show depends on the length of paths.
        let documents = try fixture.source("documents")
        try "text".write(toFile: documents + "/letter", atomically: true, encoding: .utf8)
        try fixture.grant(documents)
        try fixture.grant(fixture.source("photographs"), "--read-only")
        let mountpoint = try fixture.mount()
        let holder = try Child([
            "bash", "-c", "exec 3<\"$1\"; echo held; read; cat <&3 2>/dev/null || echo lost", "bash", mountpoint + "/documents/letter",
        ])
        try holder.expect("held")
        return (fixture, holder)
    }

    @Test("A key in `top` revokes a grant, and the process loses its file")
    func aGrantIsRevokedByAKeyAndAProcessLosesIt() throws {
        let (fixture, holder) = try situation()
        let terminal = try TerminalSession("\"$GRANTFS\" top --delay 0.3", in: fixture)
        try terminal.expect("top-two-grants", masks: masks)
        try terminal.send("Down", "r")
        try terminal.expect("top-question", masks: masks)
        try terminal.resize(columns: 40, rows: 10)
        try terminal.expect("top-question-narrow", masks: masks)
        try terminal.send("y")
        try terminal.expect("top-revoked-narrow", masks: masks)
        try terminal.resize(columns: 80, rows: 24)
        try terminal.expect("top-revoked", masks: masks)
        holder.send("")
        try holder.expect("lost")
        #expect(try fixture.list("--all").map(\.state) == ["revoked", "active"])
        try terminal.send("?")
        try terminal.expect("top-help")
        try terminal.send("x", "q")
        #expect(try terminal.status() == 0)
    }

    @Test("`top` narrows, restores and unmounts")
    func accessIsNarrowedAndAGrantRestoredAndAViewUnmounted() throws {
        let (fixture, holder) = try situation()
        let terminal = try TerminalSession("\"$GRANTFS\" top --delay 0.3", in: fixture)
        try terminal.waitFor("documents")
        try terminal.send("Down", "a", "y")
        try terminal.waitFor("made read-only “documents”, confirmed by 1 mount")
        #expect(try fixture.list().map(\.access) == ["read-only", "read-only"])
        try fixture.grantfs("revoke", "documents").orThrow()
        try terminal.waitFor("revoked")
        try terminal.send("e", "y")
        try terminal.waitFor("restored “documents”, confirmed by 1 mount")
        #expect(try fixture.list().map(\.state) == ["active", "active"])
        try terminal.send("u", "y")
        try terminal.waitFor("it is in use")
        holder.kill()
        try terminal.send("u", "n")
        try terminal.waitFor("nothing was changed")
        #expect(fixture.mountpoints.count == 1)
        // A process that looks at it keeps it in use for a moment.
        try fixture.wait(until: "it is unmounted", within: 60) {
            try terminal.send("u", "y")
            try fixture.wait(until: "something came of it", within: 60) {
                let screen = try terminal.screen()
                return screen.contains("not mounted") || screen.contains("it is in use")
            }
            return fixture.mountpoints.isEmpty
        }
        try terminal.waitFor("not mounted")
        try terminal.send("q")
        #expect(try terminal.status() == 0)
    }

    @Test("A silent mount blocks no key of `top`")
    func aMountThatDoesNotAnswerKeepsNoKeyWaiting() throws {
        let (fixture, holder) = try situation()
        defer { holder.kill() }
        let terminal = try TerminalSession("\"$GRANTFS\" top --delay 0.3", in: fixture)
        try terminal.waitFor("documents")
        let daemon = try fixture.daemon(at: fixture.base + "/mount")
        kill(daemon, SIGSTOP)
        try terminal.waitFor("! does not answer")
        try terminal.waitFor("active ?")
        try terminal.send("?")
        try terminal.waitFor("any key goes back")
        try terminal.send("x")
        kill(daemon, SIGCONT)
        try terminal.waitFor("op/s")
        try terminal.send("q")
        #expect(try terminal.status() == 0)
    }

    @Test("`top` without a terminal prints one page")
    func whereThereIsNoTerminalItPrintsOnePage() throws {
        let (fixture, holder) = try situation()
        defer { holder.kill() }
        let output = try fixture.grantfs("top", "--delay", "0.1").orThrow()
        #expect(output.lines.count == 7)
        #expect(output.text.contains("HELD at \(fixture.base)/mount") && !output.text.contains("\u{1B}"))
        let wrong = try fixture.grantfs("top", "--delay", "0")
        #expect(wrong.status == 2 && wrong.errors.contains("invalid delay “0”"))
    }
}
