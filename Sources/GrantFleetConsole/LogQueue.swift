import GrantModel
import GrantSystem

/// Lines for a log whose reader is perhaps slow or missing. A thread of its own writes them, so
/// that a caller with a line never waits. When too many are pending, new lines are dropped and
/// their number is logged instead.
///
/// Locking: one lock around the lines, held for an access and never while writing.
final class LogQueue: Sendable {
    /// The number of pending lines, and of scalars in one.
    private static let maxPending = 128
    private static let longest = 2_000

    private struct Shared {
        var lines: [String] = []
        var dropped = 0
        var isWriting = false
        var isEnding = false
    }

    private let shared = Lock(Shared())
    private let wakeUp = Semaphore()
    private let write: @Sendable (String) -> Void

    /// `write` may block.
    init(write: @escaping @Sendable (String) -> Void) { self.write = write }

    func start() throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start("console-log") { [self] in writeLoop() }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
    }

    /// Never blocks.
    func add(_ line: String) {
        shared.withLock { shared in
            guard shared.lines.count < LogQueue.maxPending else {
                shared.dropped += 1
                return
            }
            if let notice = LogQueue.notice(&shared) { shared.lines.append(notice) }
            shared.lines.append(VisibleText.cut(line, to: LogQueue.longest))
        }
        wakeUp.post()
    }

    /// Waits half a second at most for the pending lines.
    func end() {
        for _ in 0..<50 {
            if shared.withLock({ $0.lines.isEmpty && $0.dropped == 0 && !$0.isWriting }) { break }
            ThreadSleep.milliseconds(10)
        }
        shared.withLock { $0.isEnding = true }
        wakeUp.post()
    }

    private static func notice(_ shared: inout Shared) -> String? {
        defer { shared.dropped = 0 }
        switch shared.dropped {
        case 0: return nil
        case 1: return "1 line was dropped here: the reader is too slow"
        default: return "\(shared.dropped) lines were dropped here: the reader is too slow"
        }
    }

    private func writeLoop() {
        while true {
            let line = shared.withLock { shared -> String? in
                let line = shared.lines.isEmpty ? LogQueue.notice(&shared) : shared.lines.removeFirst()
                shared.isWriting = line != nil
                return line
            }
            if let line {
                write(line)
            } else if shared.withLock({ $0.isEnding }) {
                return
            } else {
                wakeUp.waitForAny()
            }
        }
    }
}
