import Glibc
import GrantSystem

/// Cancels waiting claims, from any thread. It may be used early, late or twice, and for several claims.
public final class CoordinationCancellation: Sendable {
    private let pipe: PipePair
    private let isCancelled = Lock(false)

    public init() throws(Errno) { pipe = try PipePair() }

    public func cancel() {
        isCancelled.withLock { isCancelled in
            // One byte, which is never read: every waiter sees it.
            if !isCancelled { _ = write(pipe.writing.number, [0], 1) }
            isCancelled = true
        }
    }

    /// Readable once cancelled.
    var descriptor: Int32 { pipe.reading.number }
}
