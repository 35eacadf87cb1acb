import Glibc
import GrantSystem

/// The terminal of a program in a sandbox, when the caller has one: another one that is played to it, so that it has job control and nothing that it could do to the caller's.
final class SandboxTerminal: Sendable {
    private let outer: Int32
    private let inner = Lock<Int32?>(nil)
    private let before: termios
    /// What is typed is the caller's again once the other end is closed.
    private let handingOn: Lock<Int32?>
    private let watching: Int32
    private let hasHandedOn = Semaphore()
    /// The last of the program's output has been shown.
    private let isShown = Semaphore()

    /// nil where standard input and output are no terminal, or are another job's at this moment.
    init?() {
        guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, tcgetpgrp(STDIN_FILENO) == getpgrp() else { return nil }
        var settings = termios()
        guard tcgetattr(STDIN_FILENO, &settings) == 0, let made = try? PseudoTerminal.make(like: STDIN_FILENO) else { return nil }
        guard let ends = try? PipePair().release() else { return nil }
        watching = ends.reading
        handingOn = Lock(ends.writing)
        before = settings
        let numbers = made.release()
        // It stays open as long as this process: the threads use it until the end.
        outer = numbers.outer
        inner.withLock { $0 = numbers.inner }
    }

    /// What the program gets of it.
    func copy() throws(Errno) -> FileDescriptor {
        let number = fcntl(inner.withLock { $0 } ?? -1, F_DUPFD_CLOEXEC, 3)
        if number < 0 { throw Errno(errno) }
        return FileDescriptor(owning: number)
    }

    /// Hands on what is typed, and shows what comes, from now on.
    func begin() {
        inner.withLock { number in
            if let number { close(number) }
            number = nil
        }
        var raw = before
        cfmakeraw(&raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw)
        let outer = outer
        let shown = isShown
        // Without threads nothing is shown, and the program is not waited for by them.
        let (watching, handedOn) = (watching, hasHandedOn)
        let typing = try? WorkerThread.start("typing") {
            SandboxTerminal.copy(from: STDIN_FILENO, to: outer, until: watching)
            handedOn.post()
        }
        if let typing { typing.detach() } else { handedOn.post() }
        guard
            let showing = try? WorkerThread.start(
                "showing",
                {
                    SandboxTerminal.copy(from: outer, to: STDOUT_FILENO)
                    shown.post()
                })
        else { return shown.post() }
        showing.detach()
    }

    /// After the program: shows the rest, and leaves the caller's terminal as it was, with what is typed from now on.
    func end() {
        handingOn.withLock { number in
            if let number { close(number) }
            number = nil
        }
        _ = hasHandedOn.wait(until: Clock.monotonic + 2_000_000_000)
        _ = isShown.wait(until: Clock.monotonic + 2_000_000_000)
        var settings = before
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// The caller's terminal has another size.
    func resize() { PseudoTerminal.copySize(from: STDIN_FILENO, to: outer) }

    /// The group of processes in front; nil when there is none.
    var group: Int32? {
        let group = tcgetpgrp(outer)
        return group > 1 ? group : nil
    }

    /// `end`: when it hangs up, that was all.
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
