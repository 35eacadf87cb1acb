import Glibc
import GrantAdministration
import GrantCommandSupport
import GrantDesktop
import GrantModel
import GrantSystem

/// Asks the person whether a program may have a directory.
struct MCPAsking {
    enum Means: String, CaseIterable {
        case terminal, desktop, client, never

        /// Returns the means for a request of this client, which may be unable to ask.
        func of(_ client: MCPClient) -> Means {
            guard self == .client, !client.canAsk else { return self }
            return getenv("WAYLAND_DISPLAY") != nil || getenv("DISPLAY") != nil ? .desktop : .terminal
        }
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

    /// How long a client may take for an answer, in nanoseconds.
    static let clientPatience = InjectedFault.answerSeconds.number.map { Int64($0) * 1_000_000_000 } ?? 600_000_000_000
    /// How many requests this program has sent to its client.
    private static let sent = Lock<UInt64>(0)

    let means: Means
    let question: MCPQuestion
    let reader: JSONReader
    /// Sends a message to the client.
    let send: (JSON) -> Void
    /// Is called as long as there is no answer, with the seconds since the last call.
    let waited: (Int64) -> Void

    /// Waits for the answer. Meanwhile it reads `lines`: `seen` takes each, and their end cancels the question as well.
    func ask(_ lines: MessageLines, seen: ([UInt8]) -> Meanwhile) -> Answer {
        switch means {
        case .never: .no("the policy does not allow it, and questions are off")
        case .terminal: askOnTerminal(lines, seen)
        case .desktop: askOnDesktop(lines, seen)
        case .client: askClient(lines, seen)
        }
    }

    private func askOnTerminal(_ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile) -> Answer {
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
        let choices = question.access == .readOnly ? "[y]es, [N]o?" : "[y]es, to [r]ead only, [N]o?"
        var size = winsize()
        let columns = ioctl(terminal.number, UInt(TIOCGWINSZ), &size) == 0 ? Int(size.ws_col) : 0
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
        if ["y", "yes"].contains(answer) { return .yes(question.path, question.access) }
        if question.access == .readWrite, ["r", "read"].contains(answer) { return .yes(question.path, .readOnly) }
        return .no("the person said no")
    }

    /// Shows the directory in the desktop's file chooser. What the person chooses there is granted.
    private func askOnDesktop(_ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile) -> Answer {
        let result = Lock<Answer?>(nil)
        let (path, access, title) = (question.path, question.access, question.title)
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

    /// Has the client put the question to the person.
    private func askClient(_ lines: MessageLines, _ seen: ([UInt8]) -> Meanwhile) -> Answer {
        let form = MCPForm(question: question)
        let number = Self.sent.withLock { count in
            count += 1
            return count
        }
        let id = JSON.string("grantfs-\(number)")
        send(Self.message([("id", id), ("method", .string("elicitation/create")), ("params", form.parameters)]))
        let end = Clock.monotonic + Self.clientPatience
        var answer: Answer?
        while answer == nil {
            let isThere = wait(for: -1, lines, until: end) { line in
                guard answer == nil, let message = reader.read(line), message.member("method") == nil,
                    message.member("id")?.text == id.text
                else { return seen(line) }
                answer =
                    message.member("error") == nil
                    ? form.answer(message.member("result")) : .no("the client could not put the question to the person")
                return .served
            }
            guard isThere != nil else {
                withdraw(id)
                return .cancelled
            }
            if answer == nil, Clock.monotonic >= end {
                withdraw(id)
                return .no("the client gave no answer in time")
            }
        }
        return answer ?? .cancelled
    }

    private func withdraw(_ id: JSON) {
        send(Self.message([("method", .string("notifications/cancelled")), ("params", .object([("requestId", id)]))]))
    }

    private static func message(_ members: [(String, JSON)]) -> JSON { .object([("jsonrpc", .string("2.0"))] + members) }

    /// Waits for input. Returns whether the descriptor is readable, or nil if the request was
    /// cancelled.
    private func wait(
        for descriptor: Int32, _ lines: MessageLines, until end: Int64 = .max, _ seen: ([UInt8]) -> Meanwhile
    ) -> Bool? {
        let wanted = Int16(truncatingIfNeeded: POLLIN)
        // POLLHUP is always reported, and a negative descriptor never.
        var waited = [
            pollfd(fd: descriptor, events: wanted, revents: 0), pollfd(fd: lines.descriptor, events: wanted, revents: 0),
        ]
        let left = end == .max ? Self.pace * 1000 : min(Self.pace * 1000, max(0, (end - Clock.monotonic) / 1_000_000 + 1))
        let ready = poll(&waited, 2, Int32(left))
        if ready < 0 { return errno == EINTR ? false : nil }
        if ready == 0 { self.waited(left / 1000) }
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
