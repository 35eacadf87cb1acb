import GrantSystem
import Synchronization

/// Calls that may wait for kernel locks of programs, made by one thread in order.
///
/// If a call does not return, its thread is abandoned and another takes over. So a call that waits
/// delays no other. Callers must call `abandon` regularly, because no thread checks by itself
/// whether a call waits. If no thread can be made, or the limit of abandoned threads is reached,
/// calls that may wait are not begun. A later `abandon` tries again.
///
/// Locking: its own, rank 2, held for a moment and never during a call.
final class AbandonableCalls<Item: Sendable>: Sendable {
    private struct State {
        var items: [Item] = []
        /// How many of `items` were begun.
        var begun = 0
        var finished: UInt64 = 0
        /// The thread that takes items. It is nil if there are none, or if no thread may take them.
        var worker: UInt64?
        var workers: UInt64 = 0
        /// The item of the thread that takes items, and when it began (`Clock.monotonic`).
        var current: (item: Item, began: Int64)?
        /// Whether that thread should be abandoned, but the limit is reached.
        var isStuck = false
        /// The items of abandoned threads, by thread.
        var abandoned: [UInt64: Item] = [:]
        /// Whether the last attempt to make a thread failed.
        var isShort = false
        /// Whether one of the `ReserveThreads` makes calls that may wait, or is about to.
        ///
        /// All calls of this object share one such thread.
        var hasReserve = false
        /// No thread is made before this time.
        var pause: Int64 = 0
        var rest: ArraySlice<Item> { items[begun...] }
    }

    private let state = Lock(State())
    private let limit: Int
    private let sharedLimit: AbandonLimit?
    private let mayBlock: @Sendable (Item) -> Bool
    private let call: @Sendable (Item) -> Void

    private static var pause: Int64 { 50_000_000 }
    /// The number of abandoned threads from which on further ones are abandoned sooner.
    ///
    /// So a program that holds many locks gains no time.
    private static var patientAtMost: Int { 4 }

    /// Makes an empty queue of calls.
    ///
    /// `limit`: of abandoned threads. `sharedLimit`: the same, together with other queues.
    /// `mayBlock`: whether a call may wait for a lock of a program. Add such calls last. `call`:
    /// makes one call.
    init(
        limit: Int, sharedLimit: AbandonLimit? = nil, mayBlock: @escaping @Sendable (Item) -> Bool = { _ in true },
        _ call: @escaping @Sendable (Item) -> Void
    ) {
        self.limit = limit
        self.sharedLimit = sharedLimit
        self.mayBlock = mayBlock
        self.call = call
    }

    /// Adds calls, which are made after earlier ones.
    func add(_ items: [Item]) {
        if items.isEmpty { return }
        begin { state in
            state.items += items
            return true
        }
    }

    /// Abandons the running call if it has taken longer than `patience`, in nanoseconds.
    ///
    /// Another thread makes the remaining calls.
    func abandon(after patience: Int64) {
        begin { state in
            guard let worker = state.worker else { return !state.rest.isEmpty && Clock.monotonic >= state.pause }
            let patience = state.abandoned.count < Self.patientAtMost ? patience : patience / 10
            guard let current = state.current, Clock.monotonic - current.began > patience else { return false }
            guard state.abandoned.count < limit, sharedLimit?.take() ?? true else {
                state.isStuck = true
                return false
            }
            state.abandoned[worker] = current.item
            (state.current, state.worker, state.isStuck) = (nil, nil, false)
            return !state.rest.isEmpty
        }
    }

    /// If no thread can be made: makes the calls on this thread that do not wait.
    func runInline() {
        let worker = state.withLock { state -> UInt64? in
            guard state.isShort, state.current == nil, let next = state.rest.first, !mayBlock(next) else { return nil }
            return Self.appoint(&state)
        }
        if let worker { work(worker) { !self.mayBlock($0) } }
    }

    /// Whether every call has returned.
    var isDone: Bool { state.withLock { $0.worker == nil && $0.abandoned.isEmpty && $0.rest.isEmpty } }

    /// Whether a thread takes items, or is in a call that must not be abandoned.
    var isUnderWay: Bool { state.withLock { $0.worker != nil && !$0.isStuck } }

    /// How many calls were not begun.
    var pending: Int { state.withLock { $0.rest.count } }

    /// How many calls have returned.
    var finished: UInt64 { state.withLock { $0.finished } }

    /// The items whose calls were not begun or have not returned.
    var unfinished: [Item] {
        state.withLock { state in Array(state.abandoned.values) + (state.current.map { [$0.item] } ?? []) + state.rest }
    }

    /// The calls that have taken longer than `patience` in nanoseconds, abandoned or not.
    func blocked(for patience: Int64) -> [Item] {
        state.withLock { state in
            let current = state.current.map { Clock.monotonic - $0.began > patience ? [$0.item] : [] } ?? []
            return Array(state.abandoned.values) + current
        }
    }

    /// The abandoned calls that have not returned.
    var abandoned: [Item] { state.withLock { Array($0.abandoned.values) } }

    private static func appoint(_ state: inout State) -> UInt64 {
        state.workers += 1
        state.worker = state.workers
        return state.workers
    }

    /// Whether the next call might have to be abandoned, and the limit is reached.
    ///
    /// Returns false if this queue has no abandoned call: locks of other queues' programs must not
    /// prevent all of its calls.
    private func isFull(_ state: State) -> Bool {
        guard !state.abandoned.isEmpty, let next = state.rest.first, mayBlock(next) else { return false }
        return state.abandoned.count >= limit || sharedLimit?.isFull ?? false
    }

    /// Makes a thread take items if `change` returns true and none takes them.
    private func begin(_ change: (inout State) -> Bool) {
        let worker = state.withLock { state -> UInt64? in
            guard change(&state), state.worker == nil else { return nil }
            if isFull(state) {
                state.pause = Clock.monotonic + Self.pause
                return nil
            }
            return Self.appoint(&state)
        }
        guard let worker else { return }
        do throws(Errno) {
            try WorkerThread.start("grantfs-task") { [self] in work(worker) { _ in true } }.detach()
            state.withLock { $0.isShort = false }
        } catch {
            reserve(worker)
        }
    }

    /// Lets a reserve thread take the items, because no thread can be made.
    private func reserve(_ worker: UInt64) {
        let (mayHang, isTaken) = state.withLock { state -> (Bool, Bool) in
            state.isShort = true
            let mayHang = state.rest.first.map(mayBlock) ?? false
            if mayHang, state.hasReserve {
                if state.worker == worker { (state.worker, state.pause) = (nil, Clock.monotonic + Self.pause) }
                return (true, true)
            }
            if mayHang { state.hasReserve = true }
            return (mayHang, false)
        }
        if isTaken { return }
        let task: @Sendable () -> Void = { [self] in
            work(worker) { mayHang || !self.mayBlock($0) }
            if mayHang { state.withLock { $0.hasReserve = false } }
        }
        if !ReserveThreads.run(mayHang: mayHang, task) { task() }
    }

    /// Makes the calls that `accepts` allows, until another thread takes over.
    private func work(_ worker: UInt64, _ accepts: (Item) -> Bool) {
        while let item = take(worker, accepts) {
            call(item)
            if !returned(worker) { return }
        }
    }

    private func take(_ worker: UInt64, _ accepts: (Item) -> Bool) -> Item? {
        state.withLock { state in
            // Another thread has taken over.
            guard state.worker == worker else { return nil }
            guard let item = state.rest.first else {
                (state.items, state.begun, state.worker) = ([], 0, nil)
                return nil
            }
            if !accepts(item) || isFull(state) {
                (state.worker, state.pause) = (nil, Clock.monotonic + Self.pause)
                return nil
            }
            state.begun += 1
            state.current = (item, Clock.monotonic)
            return item
        }
    }

    /// Records a return. Returns false if the thread was abandoned meanwhile, and another takes the
    /// items.
    private func returned(_ worker: UInt64) -> Bool {
        state.withLock { state in
            state.finished += 1
            guard state.abandoned.removeValue(forKey: worker) == nil else {
                sharedLimit?.release(1)
                return false
            }
            (state.current, state.isStuck) = (nil, false)
            return true
        }
    }
}

/// The limit of abandoned threads of several `AbandonableCalls` together.
final class AbandonLimit: Sendable {
    private let count = Atomic<Int>(0)
    private let limit: Int

    init(limit: Int) { self.limit = limit }

    var isFull: Bool { count.load(ordering: .relaxed) >= limit }

    /// Takes one thread of the limit. Returns whether there was room.
    func take() -> Bool {
        if count.wrappingAdd(1, ordering: .relaxed).newValue <= limit { return true }
        release(1)
        return false
    }

    func release(_ number: Int) { count.wrappingSubtract(number, ordering: .relaxed) }
}
