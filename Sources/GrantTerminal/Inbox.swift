import Glibc
import GrantSystem

/// A queue of messages for the thread that shows the screen. `post` may be called from any thread and does not block.
///
/// Locking: a lock of its own, held for a moment.
public final class Inbox<Message: Sendable>: Sendable {
    private let messages = Lock<[Message]>([])
    private let pipe: PipePair

    public init() throws(Errno) { pipe = try PipePair() }

    public func post(_ message: Message) {
        let isFirst = messages.withLock { messages in
            messages.append(message)
            return messages.count == 1
        }
        // One byte while the queue is not empty, so the pipe can never be full.
        if isFirst { _ = write(pipe.writing.number, [UInt8(0)], 1) }
    }

    /// The wake-up descriptor: readable while the queue is not empty.
    var number: Int32 { pipe.reading.number }

    func take() -> [Message] {
        messages.withLock { messages in
            if messages.isEmpty { return [] }
            var byte = UInt8(0)
            _ = read(pipe.reading.number, &byte, 1)
            defer { messages = [] }
            return messages
        }
    }
}
