import GrantSystem
import Synchronization

/// Calls that may wait for a lock which a program holds in the kernel, made one after the other by a thread that is left behind when one
/// does not return. So one call that waits costs no other.
///
/// Nobody looks by itself whether a call waits: whoever is interested calls `abandon` now and then. Where no thread can be made, or as many were left
/// behind as may be, what may wait is not begun, and `abandon` tries again.
///
/// Locking: its own, rank 2, held for a moment; not while a call is made.
final class AbandonableCalls<Item: Sendable>: Sendable {
    private struct State {
        var items: [Item] = []
        /// How many of `items` were begun.
        var begun = 0
        var finished: UInt64 = 0
        /// The thread that takes items; nil when there is nothing to take, or nobody who may.
        var worker: UInt64?
        var workers: UInt64 = 0
        /// What the thread that takes items is about, and since when (`Clock.monotonic`).
        var current: (item: Item, began: Int64)?
        /// It should be left behind, and too many were.
        var isStuck = false
        /// What was left behind, by its thread.
        var abandoned: [UInt64: Item] = [:]
        /// The last thread that was wanted could not be made.
        var isShort = false
        /// One of the `ReserveThreads` makes calls that may wait, or is about to: no more than one for all of these.
        var hasReserve = false
        /// No thread is tried for before this moment.
        var pause: Int64 = 0
        var rest: ArraySlice<Item> { items[begun...] }
    }

    private let state = Lock(State())
    private let limit: Int
    private let sharedLimit: AbandonLimit?
    private let mayBlock: @Sendable (Item) -> Bool
    private let call: @Sendable (Item) -> Void

    private static var pause: Int64 { 50_000_000 }
    /// From so many on that were left behind, the next ones are left sooner: a program that holds many locks gains no time by it.
    private static var patientAtMost: Int { 4 }

    /// `limit`: so many threads are left behind at the most. `sharedLimit`: and so many together with others' calls. `mayBlock`: whether a call may wait for
    /// what a program holds; such calls come last. `call`: makes one call.
    init(
        limit: Int, sharedLimit: AbandonLimit? = nil, mayBlock: @escaping @Sendable (Item) -> Bool = { _ in true },
        _ call: @escaping @Sendable (Item) -> Void
    ) {
        self.limit = limit
        self.sharedLimit = sharedLimit
        self.mayBlock = mayBlock
        self.call = call
    }

    /// Has the calls made, after those that were added before.
    func add(_ items: [Item]) {
        if items.isEmpty { return }
        begin { state in
            state.items += items
            return true
        }
    }

    /// Leaves the call behind that is being made, if it has taken longer than so many nanoseconds, and has the rest made by another thread.
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

    /// Where no thread can be made: makes the calls here that wait for nobody.
    func runInline() {
        let worker = state.withLock { state -> UInt64? in
            guard state.isShort, state.current == nil, let next = state.rest.first, !mayBlock(next) else { return nil }
            return Self.appoint(&state)
        }
        if let worker { work(worker) { !self.mayBlock($0) } }
    }

    /// Whether every call has returned.
    var isDone: Bool { state.withLock { $0.worker == nil && $0.abandoned.isEmpty && $0.rest.isEmpty } }

    /// Whether a thread takes items, or is in a call that is not to be left behind.
    var isUnderWay: Bool { state.withLock { $0.worker != nil && !$0.isStuck } }

    /// How many calls were not begun.
    var pending: Int { state.withLock { $0.rest.count } }

    /// How many calls have returned.
    var finished: UInt64 { state.withLock { $0.finished } }

    /// What has not been called, or has not returned.
    var unfinished: [Item] {
        state.withLock { state in Array(state.abandoned.values) + (state.current.map { [$0.item] } ?? []) + state.rest }
    }

    /// The calls that have taken longer than so many nanoseconds, whether they were left behind or not.
    func blocked(for patience: Int64) -> [Item] {
        state.withLock { state in
            let current = state.current.map { Clock.monotonic - $0.began > patience ? [$0.item] : [] } ?? []
            return Array(state.abandoned.values) + current
        }
    }

    /// The calls that were left behind and have not returned.
    var abandoned: [Item] { state.withLock { Array($0.abandoned.values) } }

    private static func appoint(_ state: inout State) -> UInt64 {
        state.workers += 1
        state.worker = state.workers
        return state.workers
    }

    /// Whether what comes next might have to be left behind, which cannot be. One is tried all the same where none of these was left: what others' programs
    /// hold keeps nobody's calls from being made.
    private func isFull(_ state: State) -> Bool {
        guard !state.abandoned.isEmpty, let next = state.rest.first, mayBlock(next) else { return false }
        return state.abandoned.count >= limit || sharedLimit?.isFull ?? false
    }

    /// Has a thread take items if `change` says that there are some, and none takes them.
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

    /// Where no thread can be made one of those in reserve takes the items.
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

    /// Makes the calls that `accepts` says yes to, until there is another.
    private func work(_ worker: UInt64, _ accepts: (Item) -> Bool) {
        while let item = take(worker, accepts) {
            call(item)
            if !returned(worker) { return }
        }
    }

    private func take(_ worker: UInt64, _ accepts: (Item) -> Bool) -> Item? {
        state.withLock { state in
            // Somebody else does it meanwhile.
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

    /// False for a thread that was left behind meanwhile: another takes the items.
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

/// How many threads may be left behind by several `AbandonableCalls` together.
final class AbandonLimit: Sendable {
    private let count = Atomic<Int>(0)
    private let limit: Int

    init(limit: Int) { self.limit = limit }

    var isFull: Bool { count.load(ordering: .relaxed) >= limit }

    /// Whether there was room for one more.
    func take() -> Bool {
        if count.wrappingAdd(1, ordering: .relaxed).newValue <= limit { return true }
        release(1)
        return false
    }

    func release(_ number: Int) { count.wrappingSubtract(number, ordering: .relaxed) }
}
