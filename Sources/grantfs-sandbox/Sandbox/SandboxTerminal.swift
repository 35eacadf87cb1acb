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
        let (outer, screen, shown) = (outer, screen, isShown)
        // Without threads nothing is copied, and the end of the program does not wait for them.
        if !startTyping() { hasHandedOn.post() }
        guard
            let showing = try? WorkerThread.start(
                "showing",
                {
                    SandboxTerminal.copy(from: outer, to: screen)
                    shown.post()
                })
        else { return shown.post() }
        showing.detach()
    }

    /// Ends copying after the program's end: shows the remaining output, and restores the caller's terminal.
    func end() {
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
        let typing = try? WorkerThread.start("typing") {
            SandboxTerminal.copy(from: STDIN_FILENO, to: outer, until: watching)
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

    /// Copies until the source ends, or the descriptor `end` hangs up.
    private static func copy(from source: Int32, to target: Int32, until end: Int32 = -1) {
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
            guard count > 0 else { return }
            var rest = buffer[..<count]
            while !rest.isEmpty {
                let written = rest.withUnsafeBytes { write(target, $0.baseAddress, $0.count) }
                if written < 0, errno == EINTR { continue }
                guard written > 0 else { return }
                rest = rest.dropFirst(written)
            }
        }
    }
}
