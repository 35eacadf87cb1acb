import LinuxFS

/// Calls that may wait for a lock which a program holds in the kernel, made one after the other by a thread that is left behind when one
/// does not return. So one call that waits costs no other.
///
/// Nobody looks by itself whether a call waits: whoever is interested calls `leave` now and then.
///
/// Locking: its own, rank 2, held for a moment; not while a call is made.
final class LeavableCalls<Item: Sendable>: Sendable {
    private struct State {
        var items: [Item] = []
        /// How many of `items` were begun.
        var begun = 0
        var finished: UInt64 = 0
        /// The thread that takes items; nil when there is nothing to take.
        var worker: UInt64?
        var workers: UInt64 = 0
        /// What the thread that takes items is about, and since when (`Clock.monotonic`).
        var current: (item: Item, began: Int64)?
        /// What was left behind, by its thread.
        var left: [UInt64: Item] = [:]
    }

    private let state = Lock(State())
    private let limit: Int
    private let call: @Sendable (Item) -> Void

    /// `limit`: so many threads are left behind at the most; then what waits holds up the rest. `call`: makes one call.
    init(limit: Int, _ call: @escaping @Sendable (Item) -> Void) {
        self.limit = limit
        self.call = call
    }

    /// Has the calls made, after those that were added before.
    func add(_ items: [Item]) {
        if items.isEmpty { return }
        let worker = state.withLock { state -> UInt64? in
            state.items += items
            return state.worker == nil ? Self.appoint(&state) : nil
        }
        if let worker { start(worker) }
    }

    /// Leaves the call behind that is being made, if it has taken longer than so many nanoseconds, and has the rest made by another thread.
    func leave(after patience: Int64) {
        let worker = state.withLock { state -> UInt64? in
            guard let worker = state.worker, let current = state.current, Clock.monotonic - current.began > patience,
                state.left.count < limit
            else { return nil }
            state.left[worker] = current.item
            state.current = nil
            state.worker = nil
            return state.begun < state.items.count ? Self.appoint(&state) : nil
        }
        if let worker { start(worker) }
    }

    /// Whether every call has returned.
    var isDone: Bool { state.withLock { $0.worker == nil && $0.left.isEmpty } }

    /// Whether a thread takes items, or is in a call that was not left behind.
    var isUnderWay: Bool { state.withLock { $0.worker != nil } }

    /// How many calls have returned.
    var finished: UInt64 { state.withLock { $0.finished } }

    /// What has not been called, or has not returned.
    var unfinished: [Item] {
        state.withLock { state in
            Array(state.left.values) + (state.current.map { [$0.item] } ?? []) + state.items[state.begun...]
        }
    }

    /// The calls that were left behind and have not returned.
    var left: [Item] { state.withLock { Array($0.left.values) } }

    private static func appoint(_ state: inout State) -> UInt64 {
        state.workers += 1
        state.worker = state.workers
        return state.workers
    }

    private func start(_ worker: UInt64) {
        _ = BackgroundTask { [self] in
            while let item = take(worker) {
                call(item)
                if !returned(worker) { return }
            }
        }
    }

    private func take(_ worker: UInt64) -> Item? {
        state.withLock { state in
            guard state.begun < state.items.count else {
                (state.items, state.begun, state.worker) = ([], 0, nil)
                return nil
            }
            let item = state.items[state.begun]
            state.begun += 1
            state.current = (item, Clock.monotonic)
            return item
        }
    }

    /// False for a thread that was left behind meanwhile: another takes the items.
    private func returned(_ worker: UInt64) -> Bool {
        state.withLock { state in
            state.finished += 1
            guard state.left.removeValue(forKey: worker) == nil else { return false }
            state.current = nil
            return true
        }
    }
}
