import Glibc

/// Messages on a descriptor, one a line.
final class MessageLines {
    enum Next {
        case line([UInt8])
        /// A line longer than a message may be. It is dropped.
        case tooLong
        case end
    }

    /// The maximum length of a message, in bytes.
    static let longest = 1 << 20

    let descriptor: Int32
    private var pending: [UInt8] = []
    /// Lines that were read while the caller waited for something else.
    private var queue: [Next] = []
    private var isSkipping = false
    private var hasEnded = false

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// Waits for the next line.
    func next() -> Next {
        while true {
            if !queue.isEmpty { return queue.removeFirst() }
            if hasEnded { return .end }
            _ = take()
        }
    }

    /// Reads the data that has arrived. It may block. It returns false at the end. `seen` is called
    /// for each new line. A line for which it returns true is dropped.
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

    /// Drops queued lines.
    func drop(_ isDropped: ([UInt8]) -> Bool) {
        queue.removeAll { if case .line(let line) = $0 { isDropped(line) } else { false } }
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

    /// Whether so many lines are queued that no more should be read for now.
    var isFull: Bool { queue.count >= 64 }
}
