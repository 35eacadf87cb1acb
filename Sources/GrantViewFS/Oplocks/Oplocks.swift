import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// The locked files that only programs of this mount have open, called oplocks by Samba.
///
/// No other process can have changed or read such a file, so the daemon answers requests for its
/// locks immediately (`Oplock`). A process that opens it on the host or in another mount must wait.
/// Meanwhile the kernel writes back the data that programs here stored in mappings of it.
///
/// A file is probed when it is first locked, while it is open once. First, opens of it are made to
/// wait (`OpenPermissionEvents`). Then the kernel is asked which processes have it open. An earlier
/// opener is counted then, and a later one must wait.
///
/// Locking: rank 2, held for a moment.
final class Oplocks: @unchecked Sendable {
    // Sendable: everything is behind `state`, except the atomics and `view`, which is set before
    // other threads use it.

    struct Entry {
        enum Stage {
            /// A worker is probing which processes have the file open.
            case looking
            /// Only programs of this mount have it open.
            case held
            /// Another process opens it and waits while the kernel writes back data of programs
            /// here.
            case breaking
        }

        let node: UInt64
        let scope: UInt32
        /// Distinguishes it from earlier and later entries of the same file.
        let number: UInt64
        var stage = Stage.looking
        var openings: [OpenPermissionEvents.Opening] = []
        /// Requests that opened the file through another grant and wait.
        var requests: [GrantSystem.Semaphore] = []
        /// Another process opened it during the probe.
        var isContended = false
        /// When the waiting opens are released: `deadline` without further write-back, `end` in any
        /// case.
        ///
        /// Nanoseconds of `Clock.monotonic`.
        var (deadline, end): (Int64, Int64) = (0, 0)

        init(node: UInt64, scope: UInt32, number: UInt64) { (self.node, self.scope, self.number) = (node, scope, number) }
    }

    /// Commands for the watching thread, in the order in which entries are added and removed.
    enum Command {
        case mark(NodeKey, descriptor: Int32, answer: MarkResult)
        case unmark(NodeKey)
        case allow([OpenPermissionEvents.Opening])
        case barrier(GrantSystem.Semaphore)
    }

    final class MarkResult: @unchecked Sendable {
        // Sendable: `isMarked` is written before `isReady` is posted and read after that.
        let isReady = Semaphore()
        var isMarked = false
    }

    /// A file that must be written back, or a report of a late one.
    enum Job {
        case writeBack(NodeKey, node: UInt64, scope: UInt32, number: UInt64)
        case late
    }

    struct State {
        var entries: [NodeKey: Entry] = [:]
        /// The entries below each grant.
        var scopes: [UInt32: Set<NodeKey>] = [:]
        /// The files that are being written back, by node.
        var breaking: [UInt64: NodeKey] = [:]
        /// A lower bound of their deadlines, in nanoseconds of `Clock.monotonic`.
        var nextDeadline: Int64 = .max
        var commands: [Command] = []
        var jobs: [Job] = []
        var count: UInt64 = 0
    }

    let state = Lock(State())
    let wakeup: OpenPermissionEvents.Wakeup
    let jobsPending = Semaphore()
    /// Whether opens can be made to wait.
    let hasOpenings = Atomic<Bool>(false)
    /// The limit of entries: each takes a descriptor in the watching thread's table.
    ///
    /// While nothing is watched, it is 0.
    let limit = Atomic<Int>(0)
    /// The limit as it was before `breakAll`.
    private let stopped = Atomic<Int>(0)
    /// A filter of the entries: one bit for the low digits of each inode number.
    ///
    /// An open of another file need not take the lock. Cleared when there are no entries.
    let entryBits = Atomic<UInt64>(0)
    /// The number of files that are being written back.
    let breakingCount = Atomic<Int>(0)
    let writers: ThreadPool
    weak nonisolated(unsafe) var view: ViewFS?

    /// How long an open elsewhere waits without progress, and how long in any case.
    ///
    /// Nanoseconds. Progress means that the kernel has written back a part of the file.
    static let (stallTimeout, maxTimeout): (Int64, Int64) = (2_000_000_000, 30_000_000_000)

    init(writers: ThreadPool) throws(Errno) {
        self.writers = writers
        wakeup = try OpenPermissionEvents.Wakeup()
    }

    /// Probes whether another process has the file behind `descriptor` open.
    ///
    /// Called before a lock is taken, and when a file that was locked before is opened. Does
    /// nothing if the answer is known, or if the file is not open exactly once in this mount. Waits
    /// for the watching thread, which never blocks.
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

    /// Handles an open through this mount.
    ///
    /// If the file has an entry of another grant, waits until the data stored through that grant is
    /// written back. An open on the host waits for the same.
    func opened(_ id: UInt64, _ key: NodeKey) {
        // The open came before this load, and the entry comes before the kernel is asked for
        // openers: one of the two sees the other.
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

    /// Extends the deadline of opens that wait for a partly written back file.
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

    /// Handles a close that may be the file's last in this mount: the next open is probed again.
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

    /// Removes the entries of a shut scope that no operation is inside.
    ///
    /// Returns when the watching thread has no descriptor of them.
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

    /// Breaks all oplocks, so that no open waits once their data is written back.
    ///
    /// Returns false if that is not done by `deadline` (`Clock.monotonic`). Oplocks are then as
    /// before. Called by a thread that serves no requests.
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

    /// Allows oplocks again, after `breakAll`.
    func resume() {
        let before = stopped.exchange(0, ordering: .acquiringAndReleasing)
        if before > 0 { limit.store(before, ordering: .releasing) }
    }

    // MARK: with the lock held

    /// Begins to break an oplock.
    ///
    /// From here on the file's locks are handled as if other processes had it open. This includes
    /// locks that are being tried.
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

    /// Removes an entry and releases the opens that wait for it.
    ///
    /// Returns the waiting requests, which the caller wakes.
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
