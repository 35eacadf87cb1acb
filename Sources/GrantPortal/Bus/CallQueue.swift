import GrantSystem

/// The owner of a connection. All connections of a group share its limits, however many they are.
enum CallerGroup: Hashable, Sendable {
    /// What this program does by itself.
    case service
    /// The programs outside of sandboxes.
    case owner
    case app(String)
    /// All callers that cannot be identified, together.
    case nobody

    /// How much work of one group may wait.
    var most: BusLoad {
        switch self {
        case .service: BusLoad(calls: .max, values: .max, bytes: .max, descriptors: .max)
        case .owner: BusLoad(calls: 16_384, values: 524_288, bytes: 67_108_864, descriptors: DescriptorShare.most(4096))
        case .app: BusLoad(calls: 1024, values: 65_536, bytes: 4_194_304, descriptors: DescriptorShare.most(1024))
        case .nobody: BusLoad(calls: 256, values: 16_384, bytes: 1_048_576, descriptors: DescriptorShare.most(256))
        }
    }

    /// How many workers may be busy for it at a time: a file that a worker opens may hang.
    var workers: Int {
        switch self {
        case .service: 2
        case .owner: 4
        case .app: 2
        case .nobody: 1
        }
    }

    var isConfined: Bool {
        switch self {
        case .app, .nobody: true
        case .service, .owner: false
        }
    }

    /// Enough that files that hang for some groups leave workers for the others.
    static let allWorkers = owner.workers + confinedWorkers + service.workers
    /// Of all applications together.
    static let confinedWorkers = 4
    /// How much work of all applications together may wait.
    static let mostConfined = BusLoad(calls: 8192, values: 262_144, bytes: 16_777_216, descriptors: DescriptorShare.most(4096))
    /// How much work of connections whose group is not known yet may wait. With more, nothing is
    /// read from the bus until the next group is known.
    static let mostUnknown = BusLoad(calls: 1024, values: 131_072, bytes: 8_388_608, descriptors: DescriptorShare.most(1024))
}

/// The work of several senders, in the order of each, one piece of each at a time. Groups of
/// senders have their turns, and so do the senders of a group. A sender of much work delays only
/// itself, and work that does not fit into a group's share is refused.
///
/// Work of a new sender is kept apart until its group is known (`settle`).
///
/// Locking: its own lock, for a look or a change. No other lock is taken under it.
final class CallQueue<Work: Sendable>: Sendable {
    private typealias Piece = (work: Work, load: BusLoad)

    /// A sender.
    private struct Line {
        let group: CallerGroup
        var waiting: ArraySlice<Piece> = []
        var isBusy = false
        var hasGone = false
    }

    private struct Group {
        var load = BusLoad()
        /// Senders that have work and are not busy.
        var turns: ArraySlice<String> = []
        var busy = 0
        /// Whether it is in the list of turns.
        var isInTurn = false
    }

    private struct State {
        var lines: [String: Line] = [:]
        var groups: [CallerGroup: Group] = [:]
        var turns: ArraySlice<CallerGroup> = []
        var confined = BusLoad()
        var confinedBusy = 0
        /// Of new senders, and these in the order in which they came.
        var unknown: [String: [Piece]] = [:]
        var arrivals: ArraySlice<String> = []
        var unknownLoad = BusLoad()
        var hasEnded = false
    }

    private let state = Lock(State())
    private let signal = Semaphore()
    private let arrival = Semaphore()

    /// Returns false when there is no room for it in the group's share.
    func add(_ work: Work, _ load: BusLoad, from sender: String) -> Bool {
        let (isAdded, isNew) = state.withLock { state -> (Bool, Bool) in
            guard !state.hasEnded else { return (false, false) }
            guard state.lines[sender] == nil else { return (CallQueue.put((work, load), sender, &state), false) }
            let isNew = state.unknown[sender] == nil
            if isNew { state.arrivals.append(sender) }
            state.unknown[sender, default: []].append((work, load))
            state.unknownLoad = state.unknownLoad + load
            return (true, isNew)
        }
        if isNew { arrival.post() } else if isAdded { signal.post() }
        return isAdded
    }

    /// Work of this program's own. It is never refused.
    func add(_ work: Work, from sender: String) {
        state.withLock { state in
            guard !state.hasEnded else { return }
            if state.lines[sender] == nil { state.lines[sender] = Line(group: .service) }
            _ = CallQueue.put((work, BusLoad()), sender, &state)
        }
        signal.post()
    }

    private static func put(_ piece: Piece, _ sender: String, _ state: inout State) -> Bool {
        guard var line = state.lines[sender], !line.hasGone else { return false }
        let load = (state.groups[line.group]?.load ?? BusLoad()) + piece.load
        guard load.fits(in: line.group.most) else { return false }
        if line.group.isConfined {
            let all = state.confined + piece.load
            guard all.fits(in: CallerGroup.mostConfined) else { return false }
            state.confined = all
        }
        state.groups[line.group, default: Group()].load = load
        if line.waiting.isEmpty, !line.isBusy { CallQueue.queue(sender, line.group, &state) }
        line.waiting.append(piece)
        state.lines[sender] = line
        return true
    }

    private static func queue(_ sender: String, _ group: CallerGroup, _ state: inout State) {
        var entry = state.groups[group] ?? Group()
        entry.turns.append(sender)
        if !entry.isInTurn {
            entry.isInTurn = true
            state.turns.append(group)
        }
        state.groups[group] = entry
    }

    /// Whether nothing more may be added before the groups of new senders are known.
    var isFull: Bool { state.withLock { !$0.unknownLoad.fits(in: CallerGroup.mostUnknown) } }

    /// Waits for a new sender. Returns nil if there will be no more.
    func nextArrival() -> String? {
        while true {
            arrival.wait()
            let (sender, hasEnded) = state.withLock { ($0.arrivals.popFirst(), $0.hasEnded) }
            if hasEnded { return nil }
            // One that has gone meanwhile is in none of both.
            if let sender { return sender }
        }
    }

    /// Sets the group that a new sender belongs to. Returns the work that does not fit into the
    /// group's share.
    func settle(_ sender: String, as group: CallerGroup) -> [Work] {
        let (refused, count) = state.withLock { state -> ([Work], Int) in
            guard let pieces = state.unknown.removeValue(forKey: sender) else { return ([], 0) }
            for piece in pieces { state.unknownLoad = state.unknownLoad - piece.load }
            state.lines[sender] = Line(group: group)
            let refused = pieces.filter { !CallQueue.put($0, sender, &state) }.map(\.work)
            return (refused, pieces.count - refused.count)
        }
        if count > 0 { signal.post() }
        return refused
    }

    /// The sender is gone. What it has waiting comes back.
    func forget(_ sender: String) -> [Work] {
        state.withLock { state in
            if let pieces = state.unknown.removeValue(forKey: sender) {
                for piece in pieces { state.unknownLoad = state.unknownLoad - piece.load }
                state.arrivals.removeAll { $0 == sender }
                return pieces.map(\.work)
            }
            guard var line = state.lines[sender] else { return [] }
            let pieces = line.waiting
            for piece in pieces { CallQueue.release(piece, line.group, &state) }
            state.groups[line.group]?.turns.removeAll { $0 == sender }
            line.waiting = []
            line.hasGone = true
            state.lines[sender] = line.isBusy ? line : nil
            CallQueue.tidy(line.group, &state)
            return pieces.map(\.work)
        }
    }

    private static func release(_ piece: Piece, _ group: CallerGroup, _ state: inout State) {
        if let load = state.groups[group]?.load { state.groups[group]?.load = load - piece.load }
        if group.isConfined { state.confined = state.confined - piece.load }
    }

    /// A group of which nothing is left is forgotten.
    private static func tidy(_ group: CallerGroup, _ state: inout State) {
        guard let entry = state.groups[group], entry.turns.isEmpty, entry.busy == 0, entry.load.calls == 0 else { return }
        state.groups[group] = nil
        if entry.isInTurn { state.turns.removeAll { $0 == group } }
    }

    /// Waits for work. Returns nil if there will be no more. The caller calls `done` afterwards.
    func next() -> (sender: String, work: Work)? {
        while true {
            signal.wait()
            let (found, hasEnded) = state.withLock { ($0.hasEnded ? nil : CallQueue.take(&$0), $0.hasEnded) }
            if let found { return found }
            if hasEnded { return nil }
        }
    }

    /// Takes the next piece of a group that may have one more worker. The group is then the last in
    /// turn.
    private static func take(_ state: inout State) -> (sender: String, work: Work)? {
        for _ in 0..<state.turns.count {
            guard let group = state.turns.popFirst(), var entry = state.groups[group] else { continue }
            let mayHave = entry.busy < group.workers && (!group.isConfined || state.confinedBusy < CallerGroup.confinedWorkers)
            guard mayHave, let sender = entry.turns.popFirst(), let piece = state.lines[sender]?.waiting.popFirst() else {
                if entry.turns.isEmpty {
                    entry.isInTurn = false
                    state.groups[group] = entry
                } else {
                    state.turns.append(group)
                }
                continue
            }
            state.lines[sender]?.isBusy = true
            entry.busy += 1
            if group.isConfined { state.confinedBusy += 1 }
            entry.isInTurn = !entry.turns.isEmpty
            if entry.isInTurn { state.turns.append(group) }
            state.groups[group] = entry
            release(piece, group, &state)
            return (sender, piece.work)
        }
        return nil
    }

    func done(with sender: String) {
        let hasMore = state.withLock { state -> Bool in
            guard var line = state.lines[sender] else { return !state.turns.isEmpty }
            line.isBusy = false
            state.lines[sender] = line.hasGone ? nil : line
            state.groups[line.group]?.busy -= 1
            if line.group.isConfined { state.confinedBusy -= 1 }
            if !line.waiting.isEmpty { CallQueue.queue(sender, line.group, &state) }
            CallQueue.tidy(line.group, &state)
            return !state.turns.isEmpty
        }
        // Posts for work whose sender or group was busy have been used up without taking any.
        if hasMore { signal.post() }
    }

    /// Gives out no more work. The bus tells callers of unanswered calls when the connection closes.
    func end() {
        state.withLock { $0.hasEnded = true }
        for _ in 0..<CallerGroup.allWorkers { signal.post() }
        arrival.post()
    }
}
