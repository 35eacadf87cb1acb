import Glibc

/// Lines that come by a descriptor, a message each.
final class MessageLines {
    enum Next {
        case line([UInt8])
        /// Longer than any message may be; it is left out.
        case tooLong
        case end
    }

    /// Bytes of one message.
    static let longest = 1 << 20

    let descriptor: Int32
    private var pending: [UInt8] = []
    /// Lines that came while something else was waited for.
    private var queue: [Next] = []
    private var isSkipping = false
    private var hasEnded = false

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// Waits for the next one.
    func next() -> Next {
        while true {
            if !queue.isEmpty { return queue.removeFirst() }
            if hasEnded { return .end }
            _ = take()
        }
    }

    /// Takes what has come, which may be waited for. False when nobody is there any more. `seen` is asked about each new line: one for which it gives true is done with.
    func take(_ seen: ([UInt8]) -> Bool = { _ in false }) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = read(descriptor, &buffer, buffer.count)
        if count < 0, errno == EINTR || errno == EAGAIN { return true }
        guard count > 0 else {
            hasEnded = true
            return false
        }
        for part in buffer[..<count].split(separator: 0x0A, omittingEmptySubsequences: false).enumerated() {
            if part.offset > 0 { finish(seen) }
            if isSkipping { continue }
            pending += part.element
            if pending.count > MessageLines.longest {
                isSkipping = true
                pending = []
            }
        }
        return true
    }

    private func finish(_ seen: ([UInt8]) -> Bool) {
        let line = pending
        pending = []
        if isSkipping {
            isSkipping = false
            queue.append(.tooLong)
        } else if !line.allSatisfy({ $0 == 0x20 || $0 == 0x0D || $0 == 0x09 }), !seen(line) {
            queue.append(.line(line))
        }
    }

    /// Whether so much has come that was not asked for that no more is to be taken for now.
    var isFull: Bool { queue.count >= 64 }
}
