import Coordinator
import FUSEKit
import Glibc
import LinuxFS
import Synchronization

/// Somebody who waits. `interrupted` is set by the kernel's INTERRUPT, from whichever thread receives it.
final class LockWaiter: @unchecked Sendable {
    // Safe to share: `request` is taken under the table's lock, once; the flag is atomic; `suspicions` is its lane's.
    let scope: ScopeID
    let node: UInt64
    /// Until it is answered: what it would lock must not stay open for its sake. Under the table's lock.
    var wish: LockWish?
    var request: DetachedRequest?
    let interrupted = Atomic<Bool>(false)
    /// It has its lock, or gives it up, and waits for the kernel's view of the file. Set before it is shared.
    var isGranted = false
    /// What it is answered when its grant is withdrawn. Set before it is shared.
    var refusal = EACCES
    /// Larger than that of everybody who waited before; 0 when it got its lock at once. Set before it is shared.
    var number: UInt64 = 0
    /// How often in a row it seemed to be in a deadlock.
    var suspicions = 0

    init(scope: ScopeID, node: UInt64, wish: LockWish, request: consuming DetachedRequest) {
        self.scope = scope
        self.node = node
        self.wish = wish
        self.request = .some(request)
    }
}

/// The thread that tries for all who wait in one scope: a filesystem that hangs holds up nobody else.
final class LockLane: Sendable {
    let scope: ScopeID
    let slot: Int
    let wake = Semaphore()
    init(scope: ScopeID, slot: Int) { (self.scope, self.slot) = (scope, slot) }
}

// Locks that have to wait. Each scope's are tried for by one thread, at once when something was unlocked here and every few milliseconds
// otherwise: a lock that the host holds is only seen by trying.
extension LockTable {
    /// How many wait.
    var waitingCount: Int { state.withLock { $0.waiters.count } }

    /// Has `waiter` answered once it has its lock, or cannot have it.
    func wait(_ waiter: LockWaiter) {
        // First: as soon as it is on the list, the request may be answered by another thread.
        let data = Unmanaged.passUnretained(waiter).toOpaque()
        waiter.request?.onInterrupt(
            { _, data in
                Unmanaged<LockWaiter>.fromOpaque(data!).takeUnretainedValue().interrupted.store(true, ordering: .releasing)
            }, data: data)
        let (lane, isNew) = state.withLock { state -> (LockLane?, Bool) in
            state.count += 1
            waiter.number = state.count
            state.waiters.append(waiter)
            if let lane = state.lanes[waiter.scope.rawValue] { return (lane, false) }
            guard let slot = state.freeSlots.popLast() else { return (nil, false) }
            let made = LockLane(scope: waiter.scope, slot: slot)
            state.lanes[waiter.scope.rawValue] = made
            return (made, true)
        }
        guard let lane else {
            if take(waiter) { answer(waiter, ENOLCK) }
            return
        }
        if isNew { start(lane) }
        lane.wake.post()
    }

    private func start(_ lane: LockLane) {
        do throws(Errno) {
            try WorkerThread.start("grantfs-locks") { [self] in while retry(lane) {} }.detach()
        } catch {
            for waiter in end(lane, evenWithWaiters: true) ?? [] { answer(waiter, ENOLCK) }
        }
    }

    /// Takes a lane away, unless somebody waits in it: nil then. Returns those who did.
    private func end(_ lane: LockLane, evenWithWaiters: Bool) -> [LockWaiter]? {
        state.withLock { state in
            let left = state.waiters.filter { $0.scope == lane.scope && !$0.isGranted }
            if !left.isEmpty, !evenWithWaiters { return nil }
            state.waiters.removeAll { waiter in left.contains { $0 === waiter } }
            state.lanes[lane.scope.rawValue] = nil
            state.freeSlots.append(lane.slot)
            return left
        }
    }

    /// One round over those who wait in a lane. False when it has ended.
    private func retry(_ lane: LockLane) -> Bool {
        let waiting = state.withLock { state -> [(LockWaiter, LockWish)] in
            let limit = Clock.monotonic - 5_000_000_000
            state.retired.removeAll { $0.since < limit }
            return state.waiters.compactMap { waiter in
                waiter.scope != lane.scope || waiter.isGranted ? nil : waiter.wish.map { (waiter, $0) }
            }
        }
        for (waiter, wish) in waiting { attempt(waiter, wish, lane) }
        if !waiting.isEmpty {
            lane.wake.waitForAny(within: 4)
            return true
        }
        lane.wake.waitForAny(within: 1_000)
        return end(lane, evenWithWaiters: false) == nil
    }

    private func attempt(_ waiter: LockWaiter, _ wish: LockWish, _ lane: LockLane) {
        var error = EINTR
        if !waiter.interrupted.load(ordering: .acquiring) {
            guard let view, view.coordinator.enter(waiter.scope, for: .closing, slot: lane.slot) == .enter else {
                if take(waiter) { answer(waiter, EACCES) }
                return
            }
            error = -attempt(wish)
            view.coordinator.leave(slot: lane.slot)
        }
        if error == EAGAIN {
            waiter.suspicions = isInDeadlock(waiter) ? waiter.suspicions + 1 : 0
            // What one look saw may just have been changing.
            if waiter.suspicions < 2 { return }
            error = EDEADLK
        }
        if !take(waiter) {
            if error == 0 { undo(wish) }
        } else if error == 0, let view, view.policy.sharesLocks, !view.isSole(waiter.node) {
            refresh(waiter)
        } else {
            answer(waiter, error)
        }
    }

    /// Answers `waiter`, which has its lock, once the kernel's view of the file is fresh. On a thread of its own: the
    /// invalidation can wait for the file system of this one file.
    func refresh(_ waiter: LockWaiter) {
        waiter.isGranted = true
        state.withLock { $0.waiters.append(waiter) }
        refreshers.run { [self] in
            view?.showAsItIs(waiter.node)
            if take(waiter) { answer(waiter, 0) }
        }
    }

    /// Ends the lock of `waiter` and answers it, once what was stored in mappings of the file under the lock is in the file: whoever takes the lock
    /// next, on the host or in another mount, is to see it. On a thread of its own, as `refresh`.
    func finish(_ waiter: LockWaiter) {
        guard let wish = waiter.wish else { return }
        (waiter.isGranted, waiter.refusal) = (true, 0)
        state.withLock { $0.waiters.append(waiter) }
        refreshers.run { [self] in
            view?.writeDown(waiter.node)
            undo(wish)
            if take(waiter) { answer(waiter, 0) }
        }
    }

    /// Whether something can have been changed under a lock: a shared one is for who only reads.
    func mayGuardChanges(_ wish: LockWish) -> Bool {
        switch wish {
        case .range(let description, let range):
            state.withLock { _ in description.ranges.contains { $0.isExclusive && $0.start <= range.end && range.start <= $0.end } }
        case .whole: true
        }
    }

    /// Takes a waiter off the list; whoever gets it answers it.
    private func take(_ waiter: LockWaiter) -> Bool {
        state.withLock { state in
            guard let place = state.waiters.firstIndex(where: { $0 === waiter }) else { return false }
            state.waiters.remove(at: place)
            return true
        }
    }

    /// Answers everybody who waits in a scope that was revoked; their locks are released.
    func refuse(_ scope: ScopeID) -> Int { refuse { $0.scope == scope } }

    /// The same of those who wait for files that have left the granted directory.
    func refuse(_ nodes: Set<UInt64>) -> Int { refuse { nodes.contains($0.node) } }

    private func refuse(_ isMeant: (LockWaiter) -> Bool) -> Int {
        let waiting = state.withLock { state -> [LockWaiter] in
            let meant = state.waiters.filter(isMeant)
            state.waiters.removeAll(where: isMeant)
            return meant
        }
        for waiter in waiting { answer(waiter, waiter.refusal) }
        return waiting.count
    }

    private func answer(_ waiter: LockWaiter, _ error: Int32) {
        guard let request = waiter.request.take() else { return }
        state.withLock { state in
            waiter.wish = nil
            // Nobody interrupts one that never waited.
            if waiter.number != 0 { state.retired.append((waiter, Clock.monotonic)) }
        }
        request.reply(error: error)
    }
}
