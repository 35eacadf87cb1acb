import Glibc

/// Wakes a thread that waits on descriptors, from any thread and without ever waiting.
public final class Wakening: Sendable {
    private let pipe: PipePair

    public init() throws(Errno) {
        pipe = try PipePair()
        // Neither end may block: one byte in the pipe is enough to wake the thread.
        for end in [pipe.reading.number, pipe.writing.number] { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
    }

    /// Readable after `wake`, until `drain`.
    public var descriptor: Int32 { pipe.reading.number }

    public func wake() { _ = write(pipe.writing.number, [0], 1) }

    public func drain() {
        var bytes = [UInt8](repeating: 0, count: 256)
        while read(pipe.reading.number, &bytes, bytes.count) == bytes.count {}
    }
}
