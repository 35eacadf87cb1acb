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
        // Text typed before the question is not an answer to it.
        tcflush(terminal.number, TCIFLUSH)
        let say = { (text: String) in _ = write(terminal.number, Array(text.utf8), text.utf8.count) }
        say("\n\(question)\n\(choices)")
        let begin = Clock.monotonic + SandboxTerminal.reading
        var typed: [UInt8] = []
        while true {
            var waited = pollfd(fd: terminal.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
            let ready = poll(&waited, 1, 500)
            if isOver() {
                say("\ngrantfs: the question is withdrawn\n")
                return nil
            }
            if ready <= 0 { continue }
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = read(terminal.number, &buffer, 256)
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EIO {
                // In the background, until the person brings it to the foreground.
                usleep(500_000)
                continue
            }
            guard count > 0, typed.count < 4096 else { return nil }
            if Clock.monotonic < begin { continue }
            typed += buffer.prefix(count)
            guard let end = typed.firstIndex(of: 0x0A) else { continue }
            if let answer = answer(String(decoding: typed[..<end], as: UTF8.self)) { return answer }
            typed = []
            say(choices)
        }
    }
}
