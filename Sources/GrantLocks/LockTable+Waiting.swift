import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// Locks that have to wait. One thread (`LockRetrier`) retries those of each grant.
extension LockTable {
    /// The number of waiting requests.
    package var waitingCount: Int { allScopes.reduce(0) { sum, scope in sum + scope.state.withLock { $0.waiters.count } } }

    /// Queues `waiter`, which gets its reply once it has its lock or cannot have it.
    ///
    /// The reply is ENOLCK if too many requests of its user wait already.
    package func wait(_ waiter: LockWaiter) {
        let scope = waiter.scope
        register(waiter)
        // First: as soon as it is on the list, another thread may answer the request.
        let data = Unmanaged.passUnretained(waiter).toOpaque()
        waiter.request?.onInterrupt(
            { _, data in
                let waiter = Unmanaged<LockWaiter>.fromOpaque(data!).takeUnretainedValue()
                waiter.interrupted.store(true, ordering: .sequentiallyConsistent)
                waiter.scope.enqueueInterrupted(waiter)
            }, data: data)
        guard let isNew = list(waiter) else { return answer(waiter, ENOLCK) }
        if isNew { start(scope) }
        let (file, isQueued) = withFile(waiter.node, in: scope) { file, state in (file, state.add(waiter)) }
        let isLate = scope.state.withLock { _ in
            waiter.file = file
            return waiter.isTaken
        }
        if isQueued { scope.enqueue(file) }
        // A thread that took it meanwhile did not find it here.
        if isLate {
            file.sweep()
            removeIfUnused(file)
        }
        // Either a revoker or an interrupt has seen it on the list, or it is seen here.
        if waiter.interrupted.load(ordering: .sequentiallyConsistent) { scope.enqueueInterrupted(waiter) }
        if let host, host.coordinator.gate(scope.id).pointee.refused.contains(.read), scope.take(waiter) { answer(waiter, EACCES) }
    }

    /// Gives a waiter its number, and makes it visible to searches for deadlocks.
    func register(_ waiter: LockWaiter) {
        waits.withLock { waits in
            waits.count += 1
            waiter.number = waits.count
            if waiter.range != nil, !waiter.isGranted { waits.byOwner[waiter.owner, default: []].append(waiter) }
        }
    }

    private func unregister(_ waiter: LockWaiter) {
        guard waiter.range != nil, !waiter.isGranted else { return }
        waits.withLock { waits in
            waits.byOwner[waiter.owner]?.removeAll { $0 === waiter }
            if waits.byOwner[waiter.owner]?.isEmpty == true { waits.byOwner[waiter.owner] = nil }
        }
    }

    /// Puts a waiter on its scope's list. Returns whether the scope needs a thread now.
    ///
    /// Returns nil if there is no room.
    private func list(_ waiter: LockWaiter) -> Bool? {
        waiter.scope.state.withLock { state in
            guard state.shares[waiter.uid]?.waiting ?? 0 < LockShare.mostWaiting else { return nil }
            let isNew = state.slot == nil
            if isNew {
                guard let slot = freeSlots.withLock({ $0.popLast() }) else { return nil }
                state.slot = slot
            }
            state.waiters[waiter.number] = waiter
            state.shares[waiter.uid, default: LockShare()].waiting += 1
            state.waiting += 1
            return isNew
        }
    }

    private func start(_ scope: ScopeLocks) {
        guard let slot = scope.state.withLock({ $0.slot }) else { return }
        do throws(Errno) {
            try WorkerThread.start("grantfs-locks") { [self] in LockRetrier(scope, slot: slot, of: self).serve() }.detach()
        } catch {
            scope.state.withLock { $0.slot = nil }
            freeSlots.withLock { $0.append(slot) }
            for waiter in scope.takeAll(waiting: true) { answer(waiter, ENOLCK) }
        }
    }

    /// Answers `waiter`, which has its lock, once the kernel's cache of the file is fresh.
    ///
    /// Uses a thread of its own, because the invalidation can wait for the filesystem of this one
    /// file.
    package func refresh(_ waiter: LockWaiter) {
        run(waiter) { [self] in
            host?.revalidate(waiter.node)
            PauseGate.run(host?.pauseGate) { if waiter.scope.take(waiter) { answer(waiter, 0) } }
        }
    }

    /// Replaces `waiter`, which has got its lock and was taken off the list.
    func granted(_ waiter: LockWaiter, _ lockRequest: LockRequest) -> LockWaiter {
        let granted = LockWaiter(
            scope: waiter.scope, node: waiter.node, uid: waiter.uid, lockRequest: lockRequest, isGranted: true, message: waiter.message,
            request: waiter.request.take())
        granted.earlier = waiter
        unregister(waiter)
        if let file = waiter.scope.file(of: waiter) { removeIfUnused(file) }
        return granted
    }

    /// Ends the lock of `waiter` and answers it, after the file's mapped data is written back.
    ///
    /// The next owner of the lock, on the host or in another mount, must see data that programs
    /// stored under the lock. Uses a thread of its own, as `refresh` does.
    package func finish(_ waiter: LockWaiter) {
        guard let lockRequest = waiter.lockRequest else { return }
        waiter.refusal = 0
        run(waiter) { [self] in
            host?.writeBackData(waiter.node)
            PauseGate.run(host?.pauseGate) {
                undo(lockRequest, of: waiter.node)
                if waiter.scope.take(waiter) { answer(waiter, 0) }
            }
        }
    }

    private func run(_ waiter: LockWaiter, _ task: @escaping @Sendable () -> Void) {
        register(waiter)
        waiter.scope.state.withLock { $0.waiters[waiter.number] = waiter }
        refreshers.run(for: UInt64(truncatingIfNeeded: waiter.scope.id.rawValue) << 32 | UInt64(truncatingIfNeeded: waiter.uid), task)
    }

    /// Answers all waiters of a scope that was revoked. `releaseScope` ends their locks.
    @discardableResult
    package func refuse(_ id: ScopeID) -> Int { refuse(knownScope(id.rawValue)?.takeAll() ?? []) }

    /// Does the same for waiters of files that have left the granted directory.
    package func refuse(_ nodes: Set<UInt64>, in id: ScopeID) -> Int { refuse(knownScope(id.rawValue)?.takeAll(of: nodes) ?? []) }

    private func refuse(_ waiting: [LockWaiter]) -> Int {
        for waiter in waiting { answer(waiter, waiter.refusal) }
        return waiting.count
    }

    /// Answers a waiter. Called by the thread that took it off the list.
    func answer(_ waiter: LockWaiter, _ error: Int32) {
        unregister(waiter)
        let request = waiter.request.take()
        let file = waiter.scope.state.withLock { state -> LockedFile? in
            waiter.lockRequest = nil
            // A request that never waited cannot be interrupted.
            if let waited = waiter.earlier ?? (waiter.isGranted ? nil : waiter) { state.retired.append((waited, Clock.monotonic)) }
            return waiter.file
        }
        if let request { request.reply(error: error) }
        if let file { removeIfUnused(file) }
    }
}
