import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Which locked files nobody but programs of this mount has open: what Samba calls an oplock. Nobody else can have changed such a file or read it, so
/// its locks are answered at once (`Oplock`). Whoever opens it after all, on the host or in another mount, is kept waiting until the kernel has
/// written down what programs here have stored in mappings of it.
///
/// That nobody else has a file open is found out when it is first locked, while it is open once: first its openings are made to wait
/// (`OpenPermissionEvents`), then the kernel is asked who has it open. Who opened it before is counted by then, and who opens it later has to wait.
///
/// Locking: rank 2, held for a moment.
final class Oplocks: @unchecked Sendable {
    // Safe to share: everything is behind `state` but the flag, which is atomic, and `view`, which is set before there are others.

    struct Entry {
        enum Stage {
            /// A worker is finding out who has the file open.
            case looking
            case held
            /// Somebody else opens it, and the kernel is writing down what programs here have stored.
            case breaking
        }

        let node: UInt64
        let scope: UInt32
        /// Tells it from others of the same file, before and after it.
        let number: UInt64
        var stage = Stage.looking
        var openings: [OpenPermissionEvents.Opening] = []
        /// Requests that open the file through another grant.
        var requests: [GrantSystem.Semaphore] = []
        /// Somebody else opened it while it was being looked at.
        var isContended = false
        /// When those who wait go on unless something is written down until then, and when they do in any case, CLOCK_MONOTONIC in nanoseconds.
        var (deadline, end): (Int64, Int64) = (0, 0)

        init(node: UInt64, scope: UInt32, number: UInt64) { (self.node, self.scope, self.number) = (node, scope, number) }
    }

    /// What the watching thread is to do, in this order: marks come and go as entries do.
    enum Command {
        case mark(NodeKey, descriptor: Int32, answer: MarkResult)
        case unmark(NodeKey)
        case allow([OpenPermissionEvents.Opening])
        case barrier(GrantSystem.Semaphore)
    }

    final class MarkResult: @unchecked Sendable {
        // Safe to share: `isMarked` is written before `isReady` is posted and read after that.
        let isReady = Semaphore()
        var isMarked = false
    }

    /// What is to be written down, or was not in time.
    enum Job {
        case writeBack(NodeKey, node: UInt64, scope: UInt32, number: UInt64)
        case late
    }

    struct State {
        var entries: [NodeKey: Entry] = [:]
        /// Which of them are below one grant.
        var scopes: [UInt32: Set<NodeKey>] = [:]
        /// The files that are being written down, by node.
        var breaking: [UInt64: NodeKey] = [:]
        /// No deadline of theirs comes before; CLOCK_MONOTONIC in nanoseconds.
        var nextDeadline: Int64 = .max
        var commands: [Command] = []
        var jobs: [Job] = []
        var count: UInt64 = 0
    }

    let state = Lock(State())
    let wakeup: OpenPermissionEvents.Wakeup
    let jobsPending = Semaphore()
    /// Whether openings can be made to wait.
    let hasOpenings = Atomic<Bool>(false)
    /// How many files there can be: each takes a descriptor of the watching thread's. 0 as long as nobody watches.
    let limit = Atomic<Int>(0)
    /// What it was before `breakAll`.
    private let stopped = Atomic<Int>(0)
    /// Which there may be, a bit for the last digits of an inode's number, so that an opening need not take the lock for other files. Cleared when there are none.
    let entryBits = Atomic<UInt64>(0)
    /// How many of them are being written down.
    let breakingCount = Atomic<Int>(0)
    let writers: ThreadPool
    weak nonisolated(unsafe) var view: ViewFS?

    /// For so long somebody else's opening waits while nothing is written down, and for so long in any case.
    static let (stallTimeout, maxTimeout): (Int64, Int64) = (2_000_000_000, 30_000_000_000)

    init(writers: ThreadPool) throws(Errno) {
        self.writers = writers
        wakeup = try OpenPermissionEvents.Wakeup()
    }

    /// Finds out who has a file open that is open once in this mount, behind `descriptor`. For a lock of the file, before it is taken, and for an opening of
    /// a file that was locked before; not when it is known. Waits for the watching thread, which waits for nobody.
    func probe(_ id: UInt64, _ node: NodePointer, _ descriptor: Int32) {
        let limit = limit.load(ordering: .acquiring)
        guard limit > 0, node.pointee.openers.load(ordering: .relaxed) == 1 else { return }
        guard clinux_is_on_own_disk(descriptor) else { return node.pointee.oplock.store(.shared, ordering: .relaxed) }
        let key = node.pointee.key
        let answer = MarkResult()
        let isFirst = state.withLock { state -> Bool in
            // One grant leaves room for others.
            guard state.entries[key] == nil, state.entries.count < limit, state.scopes[node.pointee.scope]?.count ?? 0 < limit / 4 else {
                return false
            }
            state.count += 1
            state.scopes[node.pointee.scope, default: []].insert(key)
            state.entries[key] = Entry(node: id, scope: node.pointee.scope, number: state.count)
            entryBits.store(entryBits.load(ordering: .relaxed) | Self.bit(of: key), ordering: .sequentiallyConsistent)
            state.commands.append(.mark(key, descriptor: descriptor, answer: answer))
            return true
        }
        guard isFirst else { return }
        wakeup.signal()
        answer.isReady.wait()
        let isSole = answer.isMarked && clinux_is_sole_opening(descriptor)
        state.withLock { state in
            guard var entry = state.entries[key] else { return }
            if isSole, !entry.isContended, node.pointee.openers.load(ordering: .relaxed) > 0 {
                entry.stage = .held
                state.entries[key] = entry
                node.pointee.oplock.store(.stale, ordering: .sequentiallyConsistent)
            } else {
                node.pointee.oplock.store(.shared, ordering: .sequentiallyConsistent)
                remove(key, &state)
            }
        }
        wakeup.signal()
    }

    /// A file was opened through this mount. If it is another grant's as well, what was stored through that is written down first, as for an opening on
    /// the host.
    func opened(_ id: UInt64, _ key: NodeKey) {
        // The opening came before this look, as the entry comes before the look at who has the file open: one of both sees the other.
        guard entryBits.load(ordering: .sequentiallyConsistent) & Self.bit(of: key) != 0 else { return }
        let written = Semaphore()
        let mustWait = state.withLock { state -> Bool in
            guard var entry = state.entries[key], entry.node != id else { return false }
            defer { state.entries[key] = entry }
            switch entry.stage {
            case .looking:
                entry.isContended = true
                return false
            case .held: startBreaking(&entry, key, &state)
            case .breaking: break
            }
            entry.requests.append(written)
            return true
        }
        guard mustWait else { return }
        wakeup.signal()
        jobsPending.post()
        _ = written.wait(until: Clock.monotonic + Self.maxTimeout)
    }

    @inline(__always)
    private static func bit(of key: NodeKey) -> UInt64 { 1 << (key.inode & 63) }

    /// The kernel has written down something of a file: whoever waits for the rest has reason to.
    @inline(__always)
    func wrote(_ id: UInt64) {
        if breakingCount.load(ordering: .relaxed) > 0 { extend(id) }
    }

    @inline(never)
    private func extend(_ id: UInt64) {
        state.withLock { state in
            guard let key = state.breaking[id], let entry = state.entries[key] else { return }
            state.entries[key]?.deadline = min(Clock.monotonic + Self.stallTimeout, entry.end)
        }
    }

    /// A file may have been closed for the last time in this mount: what comes next is looked at anew.
    func closed(_ id: UInt64, _ node: NodePointer) {
        let known = node.pointee.oplock.load(ordering: .relaxed)
        if known == .unknown || known == .rare, node.pointee.lockRequests.load(ordering: .relaxed) == 0 { return }
        let isWatched = state.withLock { state -> Bool in
            guard node.pointee.openers.load(ordering: .relaxed) == 0 else { return false }
            let isWorthIt = node.pointee.lockRequests.exchange(0, ordering: .relaxed) >= Node.oplockThreshold
            node.pointee.oplock.store(isWorthIt ? .expected : .rare, ordering: .sequentiallyConsistent)
            guard let entry = state.entries[node.pointee.key], entry.node == id, case .held = entry.stage else { return false }
            remove(node.pointee.key, &state)
            return true
        }
        if isWatched { wakeup.signal() }
    }

    /// Lets go of the files of a scope that is shut and in which nobody is inside; returns when nothing of them is open here.
    func release(_ scope: UInt32) {
        guard limit.load(ordering: .acquiring) > 0 else { return }
        let isDone = Semaphore()
        let requests = state.withLock { state -> [GrantSystem.Semaphore] in
            var requests: [GrantSystem.Semaphore] = []
            for key in state.scopes[scope] ?? [] {
                guard let entry = state.entries[key] else { continue }
                view?.tree.nodes.find(entry.node)?.pointee.oplock.store(.shared, ordering: .sequentiallyConsistent)
                requests += end(key, entry, &state)
            }
            state.commands.append(.barrier(isDone))
            return requests
        }
        for request in requests { request.post() }
        wakeup.signal()
        isDone.wait()
    }

    /// Has nobody's opening wait any more, once what programs have stored is written down. False when that is not so by `deadline` (`Clock.monotonic`): then all is as before.
    /// From a thread that serves no requests.
    func breakAll(until deadline: Int64) -> Bool {
        let before = limit.exchange(0, ordering: .acquiringAndReleasing)
        stopped.store(before, ordering: .releasing)
        state.withLock { state in
            for key in Array(state.entries.keys) {
                guard var entry = state.entries[key], case .held = entry.stage else { continue }
                startBreaking(&entry, key, &state)
                state.entries[key] = entry
            }
        }
        wakeup.signal()
        jobsPending.post()
        while !state.withLock({ $0.entries.isEmpty }) {
            if Clock.monotonic > deadline {
                resume()
                return false
            }
            usleep(500)
        }
        return true
    }

    /// Looks again who else has files open, after `breakAll`.
    func resume() {
        let before = stopped.exchange(0, ordering: .acquiringAndReleasing)
        if before > 0 { limit.store(before, ordering: .releasing) }
    }

    // MARK: with the lock held

    /// From here on locks are answered as for a file that others have open, also those that are just being tried for.
    func startBreaking(_ entry: inout Entry, _ key: NodeKey, _ state: inout State) {
        view?.tree.nodes.find(entry.node)?.pointee.oplock.store(.shared, ordering: .sequentiallyConsistent)
        entry.stage = .breaking
        let now = Clock.monotonic
        (entry.deadline, entry.end) = (now + Self.stallTimeout, now + Self.maxTimeout)
        state.breaking[entry.node] = key
        state.nextDeadline = min(state.nextDeadline, entry.deadline)
        breakingCount.store(state.breaking.count, ordering: .relaxed)
        state.jobs.append(.writeBack(key, node: entry.node, scope: entry.scope, number: entry.number))
    }

    /// Takes an entry away and lets those go on who opened the file; returns the requests that wait.
    func end(_ key: NodeKey, _ entry: Entry, _ state: inout State) -> [GrantSystem.Semaphore] {
        remove(key, &state)
        if !entry.openings.isEmpty { state.commands.append(.allow(entry.openings)) }
        return entry.requests
    }

    private func remove(_ key: NodeKey, _ state: inout State) {
        guard let entry = state.entries.removeValue(forKey: key) else { return }
        state.scopes[entry.scope]?.remove(key)
        if state.scopes[entry.scope]?.isEmpty == true { state.scopes[entry.scope] = nil }
        if state.breaking[entry.node] == key { state.breaking[entry.node] = nil }
        breakingCount.store(state.breaking.count, ordering: .relaxed)
        if state.entries.isEmpty { entryBits.store(0, ordering: .sequentiallyConsistent) }
        state.commands.append(.unmark(key))
    }
}
