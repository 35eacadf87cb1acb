import Glibc
import GrantSystem

/// Cancels claims that are waited for, from any thread. Harmless before, after, and twice; one may serve several claims.
public final class CoordinationCancellation: Sendable {
    private let pipe: PipePair
    private let isCancelled = Lock(false)

    public init() throws(Errno) { pipe = try PipePair() }

    public func cancel() {
        isCancelled.withLock { isCancelled in
            // One byte, which is never read: whoever looks sees it.
            if !isCancelled { _ = write(pipe.writing.number, [0], 1) }
            isCancelled = true
        }
    }

    /// Readable once it was cancelled.
    var descriptor: Int32 { pipe.reading.number }
}
