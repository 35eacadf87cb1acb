import GrantSystem

/// Cancels waiting claims, from any thread. It may be used early, late or twice, and for several claims.
///
/// It holds descriptors only while a claim waits.
///
/// Locking: its own, for a moment.
public final class CoordinationCancellation: Sendable {
    private let state = Lock(State())

    private struct State {
        var isCancelled = false
        /// The claims that wait on the pipe.
        var waits = 0
        /// Readable once cancelled, for every waiter: it is never drained.
        var pipe: Wakening?
    }

    public init() {}

    public func cancel() {
        state.withLock { state in
            if !state.isCancelled { state.pipe?.wake() }
            state.isCancelled = true
        }
    }

    /// Calls `body` with a descriptor that is readable once cancelled. It is valid during the call.
    func waiting<Result>(_ body: (Int32) throws(Errno) -> Result) throws(Errno) -> Result {
        let pipe = try state.withLock { state throws(Errno) in
            let pipe: Wakening
            if let open = state.pipe {
                pipe = open
            } else {
                pipe = try Wakening()
                if state.isCancelled { pipe.wake() }
            }
            (state.pipe, state.waits) = (pipe, state.waits + 1)
            return pipe
        }
        defer {
            state.withLock { state in
                state.waits -= 1
                if state.waits == 0 { state.pipe = nil }
            }
        }
        return try body(pipe.descriptor)
    }
}
