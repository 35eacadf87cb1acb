import Glibc
import GrantSystem

/// A question on the terminal of this process, by lines.
enum ControllingTerminal {
    /// Returns the answer that `answer` reads from a line, or nil if `isOver` before. `isOver` is called twice a second.
    static func ask<Answer>(
        _ question: String, again choices: String, isOver: () -> Bool, _ answer: (String) -> Answer?
    ) -> Answer? {
        guard let terminal = try? FileDescriptor.open("/dev/tty".utf8, O_RDWR | O_NOCTTY) else { return nil }
        // A background process then gets an error instead of being stopped.
        signal(SIGTTIN, SIG_IGN)
        signal(SIGTTOU, SIG_IGN)
        let say = { (text: String) in _ = write(terminal.number, Array(text.utf8), text.utf8.count) }
        func isWithdrawn() -> Bool {
            if !isOver() { return false }
            say("\ngrantfs: the question is withdrawn\n")
            return true
        }
        say("\n\(question)\n\(choices)")
        // Keys that were meant for something else are no answer.
        let begin = Clock.monotonic + SandboxTerminal.reading
        while Clock.monotonic < begin {
            usleep(UInt32(clamping: min(begin - Clock.monotonic, 500_000_000) / 1_000 + 1))
            if isWithdrawn() { return nil }
        }
        tcflush(terminal.number, TCIFLUSH)
        var typed: [UInt8] = []
        while true {
            var waited = pollfd(fd: terminal.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
            let ready = poll(&waited, 1, 500)
            if isWithdrawn() { return nil }
            if ready <= 0 { continue }
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = read(terminal.number, &buffer, 256)
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EIO {
                // In the background, until the person brings it to the foreground.
                usleep(500_000)
                continue
            }
            // The end of the input is an empty line.
            if count <= 0 { return answer("") }
            typed += buffer.prefix(count)
            guard let end = typed.firstIndex(of: 0x0A) else {
                if typed.count > 4096 { typed = [] }
                continue
            }
            if let answer = answer(String(decoding: typed[..<end], as: UTF8.self)) { return answer }
            typed = []
            say(choices)
        }
    }
}
