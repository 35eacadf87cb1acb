import Glibc
import GrantSystem

/// Runs turns of background threads. A pause stops all of them between two turns.
///
/// Locking: its own, held for a moment.
public final class PauseGate: Sendable {
    private struct State {
        var running = 0
        var isPaused = false
    }

    private let state = Lock(State())

    public init() {}

    /// Begins a turn, as soon as there is no pause. `end` ends it.
    package func begin() {
        while !state.withLock({ state in
            if state.isPaused { return false }
            state.running += 1
            return true
        }) { usleep(500) }
    }

    package func end() { state.withLock { $0.running -= 1 } }

    public func run<Result>(_ body: () -> Result) -> Result {
        begin()
        defer { end() }
        return body()
    }

    /// Does the same with a gate that may be nil.
    package static func run<Result>(_ gate: PauseGate?, _ body: () -> Result) -> Result { gate?.run(body) ?? body() }

    /// Prevents new turns, and waits until none is running.
    ///
    /// Returns false if one is still running at `deadline` (`Clock.monotonic`). There is then no
    /// pause.
    public func pause(until deadline: Int64) -> Bool {
        state.withLock { $0.isPaused = true }
        while state.withLock({ $0.running }) > 0 {
            if Clock.monotonic > deadline {
                endPause()
                return false
            }
            usleep(200)
        }
        return true
    }

    public func endPause() { state.withLock { $0.isPaused = false } }
}
