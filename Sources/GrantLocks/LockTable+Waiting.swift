import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// Locks that have to wait. Each grant's are tried for by one thread (`LockRetrier`).
extension LockTable {
    /// How many wait.
    package var waitingCount: Int { allScopes.reduce(0) { sum, scope in sum + scope.state.withLock { $0.waiters.count } } }

    /// Has `waiter` answered once it has its lock, or cannot have it: ENOLCK when too many of its user's wait already.
    package func wait(_ waiter: LockWaiter) {
        let scope = waiter.scope
        register(waiter)
        // First: as soon as it is on the list, the request may be answered by another thread.
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
        // Whoever took it meanwhile has not seen it here.
        if isLate {
            file.sweep()
            removeIfUnused(file)
        }
        // Either a revoker or an interrupt has seen it on the list, or it is seen here.
        if waiter.interrupted.load(ordering: .sequentiallyConsistent) { scope.enqueueInterrupted(waiter) }
        if let host, host.coordinator.gate(scope.id).pointee.refused.contains(.read), scope.take(waiter) { answer(waiter, EACCES) }
    }

    /// Gives a waiter its number, and lets searches for circles find it.
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

    /// Puts a waiter on its scope's list. Whether the scope needs a thread now; nil: there is no room.
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

    /// Answers `waiter`, which has its lock, once the kernel's view of the file is fresh. On a thread of its own: the
    /// invalidation can wait for the file system of this one file.
    package func refresh(_ waiter: LockWaiter) {
        run(waiter) { [self] in
            host?.revalidate(waiter.node)
            PauseGate.run(host?.pauseGate) { if waiter.scope.take(waiter) { answer(waiter, 0) } }
        }
    }

    /// Another one in the place of `waiter`, which has got what it waited for and was taken off the list.
    func granted(_ waiter: LockWaiter, _ lockRequest: LockRequest) -> LockWaiter {
        let granted = LockWaiter(
            scope: waiter.scope, node: waiter.node, uid: waiter.uid, lockRequest: lockRequest, isGranted: true, message: waiter.message,
            request: waiter.request.take())
        granted.earlier = waiter
        unregister(waiter)
        if let file = waiter.scope.file(of: waiter) { removeIfUnused(file) }
        return granted
    }

    /// Ends the lock of `waiter` and answers it, once what was stored in mappings of the file under the lock is in the file: whoever takes
    /// the lock next, on the host or in another mount, is to see it. On a thread of its own, as `refresh`.
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

    /// Answers everybody who waits in a scope that was revoked; their locks are released.
    @discardableResult
    package func refuse(_ id: ScopeID) -> Int { refuse(knownScope(id.rawValue)?.takeAll() ?? []) }

    /// The same of those who wait for files that have left the granted directory.
    package func refuse(_ nodes: Set<UInt64>, in id: ScopeID) -> Int { refuse(knownScope(id.rawValue)?.takeAll(of: nodes) ?? []) }

    private func refuse(_ waiting: [LockWaiter]) -> Int {
        for waiter in waiting { answer(waiter, waiter.refusal) }
        return waiting.count
    }

    /// Answers a waiter. By whoever took it off the list.
    func answer(_ waiter: LockWaiter, _ error: Int32) {
        unregister(waiter)
        let request = waiter.request.take()
        let file = waiter.scope.state.withLock { state -> LockedFile? in
            waiter.lockRequest = nil
            // Nobody interrupts one that never waited.
            if let waited = waiter.earlier ?? (waiter.isGranted ? nil : waiter) { state.retired.append((waited, Clock.monotonic)) }
            return waiter.file
        }
        if let request { request.reply(error: error) }
        if let file { removeIfUnused(file) }
    }
}
