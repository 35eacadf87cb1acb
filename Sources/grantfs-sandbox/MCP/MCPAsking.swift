import GrantDesktop
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// Asks the person whether a program may have a directory.
struct MCPAsking {
    enum Means: String, CaseIterable {
        case terminal, desktop, never
    }

    enum Answer: Sendable {
        /// The chosen directory, usually the requested one.
        case yes([UInt8], Access)
        case no(String)
        /// The request was cancelled.
        case cancelled
    }

    /// What became of a message that arrived before the answer.
    enum Meanwhile {
        case queued, served
        /// It cancels the question.
        case cancelled
    }

    /// The seconds between two reports of progress. Clients give up after a minute without one.
    private static let pace: Int64 = 5

    /// When a question was withdrawn last, by `Clock.monotonic`. For so long afterwards an answer to the next one counts only when that can
    /// have been read, or a program could exchange the question while the person answers: nanoseconds.
    private static let withdrawn = Lock<Int64>(.min / 2)
    private static let memory: Int64 = 60_000_000_000
    private static let reading = InjectedFault.readingSeconds.number.map { Int64($0) * 1_000_000_000 } ?? 1_500_000_000

    let means: Means
    /// The client's name of itself, or empty if it gave none.
    let client: String
    /// Is called as long as there is no answer, with the seconds since the last call.
    let waited: (Int64) -> Void

    /// Waits for the answer. Meanwhile it reads `lines`: `seen` takes each, and their end cancels the question as well.
    func ask(_ path: [UInt8], _ access: Access, reason: String, _ lines: MessageLines, seen: ([UInt8]) -> Meanwhile) -> Answer {
        switch means {
        case .never: .no("the policy does not allow it, and questions are off")
        case .terminal: askOnTerminal(path, access, reason, lines, seen)
        case .desktop: askOnDesktop(path, access, reason, lines, seen)
        }
    }

    private func askOnTerminal(
        _ path: [UInt8], _ access: Access, _ reason: String, _ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile
    ) -> Answer {
        let terminal: FileDescriptor
        do throws(Errno) {
            terminal = try FileDescriptor.open("/dev/tty".utf8, O_RDWR | O_NOCTTY)
        } catch {
            return .no("no person can be asked: there is no terminal (grantfs mcp --ask desktop, or a policy)")
        }
        // A background process then gets an error instead of being stopped.
        signal(SIGTTIN, SIG_IGN)
        signal(SIGTTOU, SIG_IGN)
        // Text typed before the question is not an answer to it.
        tcflush(terminal.number, TCIFLUSH)
        let choices = access == .readOnly ? "[y]es, [N]o?" : "[y]es, to [r]ead only, [N]o?"
        var size = winsize()
        let columns = ioctl(terminal.number, UInt(TIOCGWINSZ), &size) == 0 ? Int(size.ws_col) : 0
        let question = MCPQuestion(client: client, path: path, access: access, reason: reason)
        let text = Array("\n\(question.text(columns: columns))\ngrantfs: \(choices) ".utf8)
        guard write(terminal.number, text, text.count) == text.count else {
            return .no("no person can be asked: the terminal takes no text")
        }
        let printed = Clock.monotonic
        let isAfterAnother = printed - Self.withdrawn.withLock { $0 } < Self.memory
        var typed: [UInt8] = []
        while !typed.contains(0x0A) {
            guard let ready = wait(for: terminal.number, lines, seen) else {
                Self.withdrawn.withLock { $0 = Clock.monotonic }
                _ = write(terminal.number, Array("\ngrantfs: the question is withdrawn\n".utf8), 35)
                return .cancelled
            }
            if !ready { continue }
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = read(terminal.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return .no("no person can be asked: this program is not in the foreground of its terminal") }
            typed += buffer.prefix(count)
            if typed.count > 4096 { return .no("the answer makes no sense") }
            if isAfterAnother, typed.contains(0x0A), Clock.monotonic - printed < Self.reading {
                typed = []
                let text = Array("grantfs: the question before was withdrawn, and this is another one: \(choices) ".utf8)
                _ = write(terminal.number, text, text.count)
            }
        }
        let answer = String(decoding: typed.prefix { $0 != 0x0A }, as: UTF8.self).lowercased().drop { $0 == " " }
        if ["y", "yes"].contains(answer) { return .yes(path, access) }
        if access == .readWrite, ["r", "read"].contains(answer) { return .yes(path, .readOnly) }
        return .no("the person said no")
    }

    /// Shows the directory in the desktop's file chooser. What the person chooses there is granted.
    private func askOnDesktop(
        _ path: [UInt8], _ access: Access, _ reason: String, _ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile
    ) -> Answer {
        let result = Lock<Answer?>(nil)
        let title = MCPQuestion(client: client, path: path, access: access, reason: reason).title
        guard let ends = try? PipePair().release() else {
            return .no("no person can be asked: there are no more descriptors")
        }
        defer { close(ends.reading) }
        let thread = try? WorkerThread.start("desktop") {
            let answer: Answer
            do throws(GrantError) {
                switch try DesktopChooser.choose(folder: path, title: title) {
                case nil: answer = .no("the person said no")
                case let chosen? where chosen.count == 1: answer = .yes(chosen[0], access)
                default: answer = .no("several directories were chosen instead of one")
                }
            } catch {
                answer = .no(error.description)
            }
            result.withLock { $0 = answer }
            close(ends.writing)
        }
        guard let thread else {
            close(ends.writing)
            return .no("no person can be asked: no thread can be made")
        }
        thread.detach()
        while true {
            guard let ready = wait(for: ends.reading, lines, seen) else { return .cancelled }
            if ready { return result.withLock { $0 } ?? .no("the desktop gave no answer") }
        }
    }

    /// Waits for input. Returns whether the descriptor is readable, or nil if the request was
    /// cancelled.
    private func wait(for descriptor: Int32, _ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile) -> Bool? {
        let wanted = Int16(truncatingIfNeeded: POLLIN)
        // POLLHUP is always reported.
        var waited = [
            pollfd(fd: descriptor, events: wanted, revents: 0), pollfd(fd: lines.descriptor, events: lines.isFull ? 0 : wanted, revents: 0),
        ]
        let ready = poll(&waited, 2, Int32(MCPAsking.pace) * 1000)
        if ready < 0 { return errno == EINTR ? false : nil }
        if ready == 0 { self.waited(MCPAsking.pace) }
        if waited[1].revents != 0 {
            var isOver = false
            let isThere = lines.take { line in
                let outcome = seen(line)
                isOver = isOver || outcome == .cancelled
                return outcome != .queued
            }
            if !isThere || isOver { return nil }
        }
        return waited[0].revents != 0
    }
}
