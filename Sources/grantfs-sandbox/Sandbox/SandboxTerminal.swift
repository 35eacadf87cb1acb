import Glibc
import GrantSystem

/// The terminal of a program in a sandbox, if a standard descriptor of the caller is one: a pseudo-terminal, so that the program has job
/// control but no access to the caller's terminal.
///
/// Keys reach the program only if it was started in the foreground. A job in the background could
/// read the keys typed at the shell's next prompt: it has a session of its own, so no SIGTTIN stops
/// it.
final class SandboxTerminal: Sendable {
    private let outer: Int32
    private let inner = Lock<Int32?>(nil)
    /// The caller's terminal, for the program's output.
    private let screen: Int32
    /// The settings of the caller's terminal, or nil if keys do not reach the program.
    private let before: termios?
    /// Closing the other end returns keyboard input to the caller.
    private let handingOn: Lock<Int32?>
    private let watching: Int32
    private let hasHandedOn = Semaphore()
    /// The keys for a question, or nil if there is none.
    private let answering = Lock<[UInt8]?>(nil)
    private let hasKeys = Semaphore()
    private let isWithdrawn = Lock(false)
    /// Held during a question: the program can neither change nor imitate it.
    private let showing = Lock(TerminalModes())
    /// The last of the program's output has been shown.
    private let isShown = Semaphore()

    /// Returns nil if no standard descriptor is a terminal.
    static func ofCaller() throws(Errno) -> SandboxTerminal? {
        guard let screen = [STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO].first(where: { isatty($0) == 1 }) else { return nil }
        return try SandboxTerminal(screen: screen)
    }

    private init(screen: Int32) throws(Errno) {
        self.screen = screen
        var settings = termios()
        let isInForeground = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp()
        before = isInForeground && tcgetattr(STDIN_FILENO, &settings) == 0 ? settings : nil
        let made = try PseudoTerminal.make(like: screen)
        let ends = try PipePair().release()
        watching = ends.reading
        handingOn = Lock(ends.writing)
        let numbers = made.release()
        // It stays open as long as this process: the threads use it until the end.
        outer = numbers.outer
        inner.withLock { $0 = numbers.inner }
    }

    /// Returns the program's end.
    func copy() throws(Errno) -> FileDescriptor {
        let number = fcntl(inner.withLock { $0 } ?? -1, F_DUPFD_CLOEXEC, 3)
        if number < 0 { throw Errno(errno) }
        return FileDescriptor(owning: number)
    }

    /// Starts copying input and output.
    func begin() {
        inner.withLock { number in
            if let number { close(number) }
            number = nil
        }
        let (outer, screen, shown, showing) = (outer, screen, isShown, showing)
        // Without threads nothing is copied, and the end of the program does not wait for them.
        if !startTyping() { hasHandedOn.post() }
        guard
            let thread = try? WorkerThread.start(
                "showing",
                {
                    SandboxTerminal.copy(from: outer) { bytes in
                        showing.withLock { modes in
                            modes.read(bytes)
                            return SandboxTerminal.write(bytes, to: screen)
                        }
                    }
                    shown.post()
                })
        else { return shown.post() }
        thread.detach()
    }

    /// Ends copying after the program's end: shows the remaining output, and restores the caller's terminal.
    func end() {
        withdrawQuestion()
        handingOn.withLock { number in
            if let number { close(number) }
            number = nil
        }
        _ = hasHandedOn.wait(until: Clock.monotonic + 2_000_000_000)
        _ = isShown.wait(until: Clock.monotonic + 2_000_000_000)
        guard var settings = before else { return }
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// Starts copying keys. Returns false if none are copied.
    private func startTyping() -> Bool {
        guard var raw = before else { return false }
        cfmakeraw(&raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw)
        let (outer, watching, handedOn) = (outer, watching, hasHandedOn)
        let typing = try? WorkerThread.start("typing") { [answering, hasKeys] in
            SandboxTerminal.copy(from: STDIN_FILENO, until: watching) { bytes in
                let isAnswer = answering.withLock { keys in
                    if keys == nil { return false }
                    keys? += bytes
                    return true
                }
                if !isAnswer { return SandboxTerminal.write(bytes, to: outer) }
                hasKeys.post()
                return true
            }
            handedOn.post()
        }
        typing?.detach()
        return typing != nil
    }

    /// Adopts a new size of the caller's terminal.
    func resize() { PseudoTerminal.copySize(from: screen, to: outer) }

    /// The foreground process group, or nil if there is none.
    var group: Int32? {
        let group = tcgetpgrp(outer)
        return group > 1 ? group : nil
    }

    // MARK: questions

    /// Whether keys can answer a question: the program was started in the foreground. Otherwise its controlling terminal is read.
    private var takesKeys: Bool { before != nil }

    /// Waits a moment until the program's earlier output is shown.
    private func awaitOutput() {
        let deadline = Clock.monotonic + 200_000_000
        var waited = pollfd(fd: outer, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        while Clock.monotonic < deadline, poll(&waited, 1, 0) > 0, waited.revents & Int16(truncatingIfNeeded: POLLIN) != 0 { usleep(2_000) }
    }

    /// Undoes what a program may have told the terminal in order to hide a question. The question is then the last text on the screen.
    static func undoModes(of terminal: Int32) { _ = write(reset, to: terminal) }

    private static let reset = Array(
        [
            // An unfinished sequence, other languages of terminals.
            "\u{18}", "\u{1B}\\", "\u{1B}\u{3}", "\u{1B}<", "\u{1B}[4i", "\u{1B}[0$}",
            TerminalModes.off,
            // A part of the screen that scrolls, between the cursor's place saved and restored.
            "\u{1B}7", "\u{1B}[r", "\u{1B}[?69l", "\u{1B}8",
            // Modes, among them insertion, no wrapping, and output that is not shown yet.
            "\u{1B}[!p", "\u{1B}[4l", "\u{1B}[?7h", "\u{1B}[?5l", "\u{1B}[?2026l", "\u{1B}[?25h",
            // Colours and their palette, other letters.
            "\u{1B}[0m", "\u{1B}]104\u{7}", "\u{1B}]110\u{7}", "\u{1B}]111\u{7}", "\u{1B}(B", "\u{1B})B", "\u{F}", "\u{1B}%G",
            // The screen below the cursor.
            "\u{1B}[J",
        ].joined().utf8)

    /// How long keys do not count: they were meant for the program.
    static let reading = InjectedFault.readingSeconds.number.map { Int64(clamping: $0) &* 1_000_000_000 } ?? 1_000_000_000

    /// Puts a question to the person in place of the program's output, which waits meanwhile. Returns the answer that `answer` reads
    /// from a line, or nil if it is withdrawn, or `isOver` before. `isOver` is called twice a second.
    func ask<Answer>(
        _ question: String, again choices: String, isOver: () -> Bool, _ answer: (String) -> Answer?
    ) -> Answer? {
        awaitOutput()
        return showing.withLock { modes in
            Self.undoModes(of: screen)
            defer { _ = SandboxTerminal.write(Array(modes.on.utf8), to: screen) }
            let result =
                takesKeys
                ? askWithKeys(question, choices, isOver, answer)
                : ControllingTerminal.ask(question, again: choices, isOver: { isWithdrawn.withLock { $0 } || isOver() }, answer)
            answering.withLock { $0 = nil }
            return result
        }
    }

    /// Has a program that draws the whole screen draw it again. Call it after the answer is carried out: the signal may end a call that waits.
    func redraw() {
        if let group { kill(-group, SIGWINCH) }
    }

    private func askWithKeys<Answer>(
        _ question: String, _ choices: String, _ isOver: () -> Bool, _ answer: (String) -> Answer?
    ) -> Answer? {
        // The terminal is in raw mode.
        let say = { [screen] (text: String) in
            _ = SandboxTerminal.write(Array(text.utf8.flatMap { $0 == 0x0A ? [0x0D, 0x0A] : [$0] }), to: screen)
        }
        say("\n\(question)\n\(choices)")
        let begin = Clock.monotonic + Self.reading
        answering.withLock { $0 = [] }
        var line: [UInt8] = []
        while true {
            _ = hasKeys.wait(until: Clock.monotonic + 500_000_000)
            if isWithdrawn.withLock({ $0 }) || isOver() {
                say("\ngrantfs: the question is withdrawn\n")
                return nil
            }
            // The end of the input is an empty line.
            if Self.hasHungUp(screen) { return answer("") }
            let keys = answering.withLock { keys in
                defer { keys = [] }
                return keys ?? []
            }
            if Clock.monotonic < begin { continue }
            for key in keys {
                switch key {
                case 0x0D, 0x0A:
                    say("\n")
                    if let answer = answer(String(decoding: line, as: UTF8.self)) { return answer }
                    line = []
                    say(choices)
                case 0x03, 0x04: line = []
                case 0x08, 0x7F:
                    if line.isEmpty { continue }
                    line.removeLast()
                    say("\u{8} \u{8}")
                case 0x20..<0x7F where line.count < 60:
                    line.append(key)
                    say(String(UnicodeScalar(key)))
                default: continue
                }
            }
        }
    }

    private static func hasHungUp(_ terminal: Int32) -> Bool {
        var waited = pollfd(fd: terminal, events: 0, revents: 0)
        return poll(&waited, 1, 0) > 0 && waited.revents & Int16(truncatingIfNeeded: POLLHUP | POLLERR) != 0
    }

    /// Ends a question that is open. There is none afterwards.
    func withdrawQuestion() {
        isWithdrawn.withLock { $0 = true }
        hasKeys.post()
    }

    // MARK: copying

    /// Copies until the source ends, the descriptor `end` hangs up, or `take` returns false.
    private static func copy(from source: Int32, until end: Int32 = -1, _ take: ([UInt8]) -> Bool) {
        var buffer = [UInt8](repeating: 0, count: 16384)
        while true {
            if end >= 0 {
                var waited = [
                    pollfd(fd: source, events: Int16(truncatingIfNeeded: POLLIN), revents: 0), pollfd(fd: end, events: 0, revents: 0),
                ]
                if poll(&waited, 2, -1) < 0, errno != EINTR { return }
                if waited[1].revents != 0 { return }
                if waited[0].revents == 0 { continue }
            }
            let count = read(source, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0, take(Array(buffer[..<count])) else { return }
        }
    }

    /// Returns false if the target takes no more.
    private static func write(_ bytes: [UInt8], to target: Int32) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(target, $0.baseAddress, $0.count) }
            if written < 0, errno == EINTR { continue }
            guard written > 0 else { return false }
            rest = rest.dropFirst(written)
        }
        return true
    }
}
