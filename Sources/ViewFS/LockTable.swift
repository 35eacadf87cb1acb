import CLinux
import Coordinator
import FUSEKit
import Glibc
import LinuxFS
import Synchronization
import ViewTree

/// Advisory locks, held on the backing files themselves, so that the host and other mounts see them.
///
/// A POSIX lock belongs to a process and a file; here it is an open-file-description lock of a description that only this owner
/// uses. A lock that has to wait leaves its worker: one thread tries again, sooner when something was unlocked here.
///
/// Locking: one lock around the tables (rank 3); lock calls are made and replies are given outside.
final class LockTable: @unchecked Sendable {
    // Safe to share: everything is behind `state` but the count, which is atomic.

    private struct State {
        var descriptions: [UInt64: [Description]] = [:]
        var waiters: [Waiter] = []
        /// Answered waiters that an interrupt under way may still look at; let go a while later.
        var retired: [(waiter: Waiter, since: Int64)] = []
    }

    private let state = Lock(State())
    /// How many descriptions there are, so that each close(2) need not take the lock to find none. A lock's request was answered before
    /// its owner closes, so whoever closes sees its own counted.
    private let descriptionCount = Atomic<Int>(0)
    private let wake = Semaphore()
    private weak nonisolated(unsafe) var view: ViewFS?

    func start(for view: ViewFS) {
        self.view = view
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { argument in
                _ = clinux_set_thread_name("grantfs-locks")
                let table = Unmanaged<LockTable>.fromOpaque(argument!).takeRetainedValue()
                while true { table.retry() }
            }, Unmanaged.passRetained(self).toOpaque())
        pthread_detach(thread)
    }

    // MARK: owners

    /// The description of `owner` on `node`, made by opening the file of `file` once more. Throws what open(2) says.
    func description(_ owner: UInt64, of node: UInt64, file: UInt64, open: () -> Int32) -> Result<Description, Errno> {
        if let known = state.withLock({ $0.descriptions[node]?.first { $0.owner == owner } }) { return .success(known) }
        let descriptor = open()
        if descriptor < 0 { return .failure(Errno(-descriptor)) }
        let made = Description(owner: owner, file: file, descriptor: descriptor)
        return .success(
            state.withLock { state in
                // Threads of one process can come here together; the second one's description holds no lock yet.
                if let known = state.descriptions[node]?.first(where: { $0.owner == owner }) { return known }
                state.descriptions[node, default: []].append(made)
                descriptionCount.wrappingAdd(1, ordering: .releasing)
                return made
            })
    }

    func existingDescription(_ owner: UInt64, of node: UInt64) -> Description? {
        state.withLock { $0.descriptions[node]?.first { $0.owner == owner } }
    }

    /// close(2) of any descriptor of the file by a process ends all its POSIX locks on it.
    func releaseOwner(_ owner: UInt64, of node: NodeID) {
        release {
            $0.owner == owner
        } of: {
            $0 == node.rawValue
        }
    }

    /// The last close of an open file ends what was locked through it: open-file-description locks.
    func releaseFile(_ file: UInt64) {
        release {
            $0.file == file
        } of: { _ in
            true
        }
    }

    private func release(_ isMeant: (Description) -> Bool, of isNode: (UInt64) -> Bool) {
        if descriptionCount.load(ordering: .acquiring) == 0 { return }
        let gone = state.withLock { state -> [Description] in
            var gone: [Description] = []
            for (node, list) in state.descriptions where isNode(node) && list.contains(where: isMeant) {
                gone += list.filter(isMeant)
                let rest = list.filter { !isMeant($0) }
                state.descriptions[node] = rest.isEmpty ? nil : rest
            }
            descriptionCount.wrappingSubtract(gone.count, ordering: .releasing)
            return gone
        }
        if gone.isEmpty { return }
        // Now, not when the last reference to a description goes.
        for description in gone { _ = clinux_ofd_set_lock(description.descriptor, Int16(F_UNLCK), 0, 0) }
        unlocked()
    }

    /// Something was unlocked here: whoever waits may try at once.
    func unlocked() { wake.post() }

    // MARK: waiting

    func wait(_ waiter: Waiter) {
        // First: as soon as it is on the list, the request may be answered by another thread.
        let data = Unmanaged.passUnretained(waiter).toOpaque()
        waiter.request?.onInterrupt(
            { _, data in
                Unmanaged<Waiter>.fromOpaque(data!).takeUnretainedValue().interrupted.store(true, ordering: .releasing)
            }, data: data)
        state.withLock { $0.waiters.append(waiter) }
        unlocked()
    }

    /// Answers `waiter`, which has its lock, once the kernel's view of the file is fresh. On a thread of its own: the
    /// invalidation can wait for the file system of this one file.
    func refresh(_ waiter: Waiter) {
        waiter.isGranted = true
        state.withLock { $0.waiters.append(waiter) }
        _ = BackgroundTask { [self] in
            view?.showAsItIs(waiter.node)
            if take(waiter) { answer(waiter, 0) }
        }
    }

    /// Takes a waiter off the list; whoever gets it answers it.
    private func take(_ waiter: Waiter) -> Bool {
        state.withLock { state in
            guard let place = state.waiters.firstIndex(where: { $0 === waiter }) else { return false }
            state.waiters.remove(at: place)
            return true
        }
    }

    /// Answers everybody who waits in a scope that was revoked; their locks are released.
    func refuse(_ scope: ScopeID) -> Int {
        let waiting = state.withLock { state -> [Waiter] in
            let meant = state.waiters.filter { $0.scope == scope }
            state.waiters.removeAll { $0.scope == scope }
            return meant
        }
        for waiter in waiting { answer(waiter, EACCES) }
        return waiting.count
    }

    /// Ends the locks of every owner on the nodes of a scope that was revoked.
    func releaseScope(_ nodes: Set<UInt64>) { release({ _ in true }, of: { nodes.contains($0) }) }

    private func answer(_ waiter: Waiter, _ error: Int32) {
        guard let request = waiter.request.take() else { return }
        state.withLock { state in
            waiter.wish = nil
            state.retired.append((waiter, Clock.monotonic))
        }
        request.reply(error: error)
    }

    /// One round over those who wait.
    private func retry() {
        let (waiting, hasRetired) = state.withLock { state -> ([(Waiter, Wish)], Bool) in
            if !state.retired.isEmpty {
                let limit = Clock.monotonic - 5_000_000_000
                state.retired.removeAll { $0.since < limit }
            }
            let waiting = state.waiters.compactMap { waiter in waiter.isGranted ? nil : waiter.wish.map { (waiter, $0) } }
            return (waiting, !state.retired.isEmpty)
        }
        for (waiter, wish) in waiting {
            let error = attempt(waiter, wish)
            guard error != EAGAIN else { continue }
            if !take(waiter) {
                if error == 0, let view { wish.undo(in: view.files) }
            } else if error == 0, view?.policy.sharesLocks == true {
                refresh(waiter)
            } else {
                answer(waiter, error)
            }
        }
        // Locks that the host holds are only seen by trying.
        if !waiting.isEmpty {
            wake.waitForAny(within: 4)
        } else if hasRetired {
            wake.waitForAny(within: 1_000)
        } else {
            wake.waitForAny()
        }
    }

    private func attempt(_ waiter: Waiter, _ wish: Wish) -> Int32 {
        if waiter.interrupted.load(ordering: .acquiring) { return EINTR }
        guard let view, view.coordinator.enter(waiter.scope, for: .read, slot: ViewFS.lockSlot) == .enter else { return EACCES }
        defer { view.coordinator.leave(slot: ViewFS.lockSlot) }
        return -wish.attempt(in: view.files)
    }
}
