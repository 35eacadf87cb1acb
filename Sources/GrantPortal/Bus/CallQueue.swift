import GrantSystem

/// Work of several senders: in the order of each, one piece of each at a time, and each has its turn. Who sends much waits for himself alone.
///
/// Locking: its own lock, for a look or a change; below it nothing is taken.
final class CallQueue<Work: Sendable>: Sendable {
    /// How much may wait, of one sender and of all together; what it counts for says whoever adds it.
    private let mostOfOne: Int
    private let most: Int

    private struct State {
        var waiting: [String: ArraySlice<(work: Work, weight: Int)>] = [:]
        var weights: [String: Int] = [:]
        /// Who has work that nobody does, in the order of their turns.
        var turns: ArraySlice<String> = []
        var busy: Set<String> = []
        var weight = 0
        var hasEnded = false
    }

    private let state = Lock(State())
    private let signal = Semaphore()

    init(mostOfOne: Int, most: Int) { (self.mostOfOne, self.most) = (mostOfOne, most) }

    /// False when the sender has too much waiting.
    func add(_ work: Work, weight: Int = 1, from sender: String) -> Bool {
        let isAdded = state.withLock { state -> Bool in
            guard state.weights[sender] ?? 0 < mostOfOne, !state.hasEnded else { return false }
            if state.waiting[sender] == nil, !state.busy.contains(sender) { state.turns.append(sender) }
            state.waiting[sender, default: []].append((work, weight))
            state.weights[sender, default: 0] += weight
            state.weight += weight
            return true
        }
        if isAdded { signal.post() }
        return isAdded
    }

    var isFull: Bool { state.withLock { $0.weight >= most } }

    /// Waits for work; nil when there will be no more. Whoever has done it calls `done`.
    func next() -> (sender: String, work: Work)? {
        while true {
            signal.wait()
            let (work, hasEnded) = state.withLock { state -> ((sender: String, work: Work)?, Bool) in
                guard !state.hasEnded, let sender = state.turns.popFirst() else { return (nil, state.hasEnded) }
                guard let first = state.waiting[sender]?.popFirst() else { return (nil, state.hasEnded) }
                state.weights[sender, default: 0] -= first.weight
                if state.waiting[sender]?.isEmpty ?? true { (state.waiting[sender], state.weights[sender]) = (nil, nil) }
                state.busy.insert(sender)
                state.weight -= first.weight
                return ((sender, first.work), false)
            }
            if let work { return work }
            if hasEnded { return nil }
        }
    }

    func done(with sender: String) {
        let hasMore = state.withLock { state -> Bool in
            state.busy.remove(sender)
            guard state.waiting[sender] != nil else { return false }
            state.turns.append(sender)
            return true
        }
        // A post of work whose sender was busy was used up without any.
        if hasMore { signal.post() }
    }

    /// Nobody gets work any more: whoever asked for it hears from the bus that there is no answer.
    func end(workers: Int) {
        state.withLock { $0.hasEnded = true }
        for _ in 0..<workers { signal.post() }
    }
}
