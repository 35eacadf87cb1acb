import GrantAdministration
import GrantModel
import GrantSystem

/// Cancels waiting claims, from any thread: present and future ones.
///
/// Locking: its own, for a moment. Handlers are called without it.
final class Cancellation: Sendable {
    /// Cancels the waits in daemons.
    let daemons = CoordinationCancellation()
    private let state = Lock<State>(State())

    private struct State {
        var isCancelled = false
        var waiting: [UInt64: @Sendable () -> Void] = [:]
        var last: UInt64 = 0
    }

    var isCancelled: Bool { state.withLock { $0.isCancelled } }

    func cancel() {
        daemons.cancel()
        let waiting = state.withLock { state in
            state.isCancelled = true
            defer { state.waiting = [:] }
            return state.waiting
        }
        for body in waiting.values { body() }
    }

    /// Calls `body` on cancellation, at once if that has happened already, until `forget` is called with the returned number.
    func whenCancelled(_ body: @escaping @Sendable () -> Void) -> UInt64 {
        let (number, isCancelled) = state.withLock { state in
            state.last += 1
            if !state.isCancelled { state.waiting[state.last] = body }
            return (state.last, state.isCancelled)
        }
        if isCancelled { body() }
        return number
    }

    func forget(_ number: UInt64) { state.withLock { $0.waiting[number] = nil } }
}
