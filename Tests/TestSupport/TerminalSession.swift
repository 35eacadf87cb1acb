import Foundation

/// A program in a terminal that tmux emulates. The tmux server has a socket in the fixture's
/// directory and ends with this value.
public final class TerminalSession {
    private let socket: String
    private let fixture: MountFixture
    /// The file with the program's exit status, written by the shell after the program ended.
    private let statusFile: String
    /// The program's output if its stdout is not a terminal.
    public let outputFile: String

    /// - Parameters:
    ///   - command: a line of the shell. `$GRANTFS` is the program.
    ///   - redirected: its stdout is a file.
    public init(_ command: String, in fixture: MountFixture, columns: Int = 80, rows: Int = 24, redirected: Bool = false) throws {
        self.fixture = fixture
        // A socket of its own, because the server of the session before may still be ending.
        socket = fixture.base + "/tmux-" + UUID().uuidString.prefix(8)
        statusFile = fixture.base + "/status"
        outputFile = fixture.base + "/output"
        unlink(statusFile)
        let line =
            "\(command)\(redirected ? " >'\(outputFile)'" : ""); echo $? >'\(statusFile).new'; mv '\(statusFile).new' '\(statusFile)'; exec sleep 1000"
        let variables = fixture.environment.merging(["GRANTFS": Programs.grantfs, "XDG_STATE_HOME": fixture.base + "/state"]) { $1 }
        try tmux(
            ["-f", "/dev/null", "new-session", "-d", "-x", "\(columns)", "-y", "\(rows)"] + variables.flatMap { ["-e", "\($0)=\($1)"] }
                + ["sh", "-c", line])
    }

    deinit {
        // The shell would write the status of a program that the fixture ends, after the directory was removed.
        let shell = (try? tmux(["list-panes", "-F", "#{pane_pid}"]).trimmed).flatMap { pid_t($0) }
        if let shell, shell > 1 { kill(shell, SIGKILL) }
        _ = try? tmux(["kill-server"])
    }

    @discardableResult
    private func tmux(_ arguments: [String]) throws -> Output {
        try Command.run(["tmux", "-u", "-S", socket] + arguments, environment: ["LC_ALL": "C.UTF-8"], within: 60).orThrow()
    }

    /// Sends keys as tmux(1) names them. Any other text is typed.
    public func send(_ keys: String...) throws { try tmux(["send-keys"] + keys) }

    public func resize(columns: Int, rows: Int) throws { try tmux(["resize-window", "-x", "\(columns)", "-y", "\(rows)"]) }

    /// Kills the shell, and by the hang-up of the terminal the program.
    public func hangUp() throws { try tmux(["kill-server"]) }

    /// The present text of the screen, with BASE for the fixture's directory.
    public func screen() throws -> String {
        let lines = try tmux(["capture-pane", "-p"]).text.replacingOccurrences(of: fixture.base, with: "BASE").components(separatedBy: "\n")
        return lines.map { line in
            line.replacingOccurrences(of: " +$", with: "", options: .regularExpression)
                // A path that was cut contains only the end of the fixture's directory.
                .replacingOccurrences(of: "s-test\\.[A-Za-z0-9]{6}/", with: "s-test.XXXXXX/", options: .regularExpression)
        }.joined(separator: "\n").trimmingCharacters(in: .newlines) + "\n"
    }

    /// Waits until the screen equals the file `Screens/NAME.txt` beside the test. `masks` are
    /// patterns and their replacements.
    public func expect(_ name: String, masks: [(String, String)] = [], test: String = #filePath) throws {
        let file = URL(fileURLWithPath: test).deletingLastPathComponent().appendingPathComponent("Screens/\(name).txt")
        let seen = {
            let screen = try self.screen()
            return masks.reduce(screen) { $0.replacingOccurrences(of: $1.0, with: $1.1, options: .regularExpression) }
        }
        if ProcessInfo.processInfo.environment["GRANTFS_RECORD_SCREENS"] == "1" {
            pause(milliseconds: 3_000)
            try seen().write(to: file, atomically: true, encoding: .utf8)
            return
        }
        let expected = try String(contentsOf: file, encoding: .utf8)
        do {
            try fixture.wait(until: name, within: 60) { try seen() == expected }
        } catch {
            throw TestFailure("the screen is not \(name).txt, which is\n\(expected)\nbut\n\(try seen())")
        }
    }

    public func waitFor(_ text: String) throws {
        do {
            try fixture.wait(until: text, within: 60) { try screen().contains(text) }
        } catch {
            throw TestFailure("“\(text)” is not to be seen:\n\(try screen())")
        }
    }

    /// Waits until the picker shows choices that can be granted. `title` is the first line's end.
    public func waitForReview(_ title: String) throws {
        do {
            try fixture.wait(until: title, within: 60) {
                // A screen is drawn in some twenty writes, with the last line last.
                let screen = try screen()
                return screen.contains(title) && screen.contains("Enter grant") && !screen.contains("being looked at")
            }
        } catch {
            throw TestFailure("“\(title)” is not to be seen, or not yet looked at:\n\(try screen())")
        }
    }

    /// Waits for the program's end and returns its exit status.
    public func status() throws -> Int {
        do {
            try fixture.wait(until: "the program has ended", within: 60) { FileManager.default.fileExists(atPath: statusFile) }
        } catch {
            throw TestFailure("the program has not ended:\n\(try screen())")
        }
        let text = try String(contentsOfFile: statusFile, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
        return Int(text) ?? -1
    }
}
