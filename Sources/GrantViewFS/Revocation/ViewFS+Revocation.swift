import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

// The revoker: from the durable withdrawal to the moment when nothing of the scope answers any more. The order of the steps is what
// makes it leak nothing; docs/ARCHITECTURE.md (the way of a revocation) says why.
extension ViewFS {
    /// What a closing takes away.
    public enum Withdrawal: Sendable {
        /// Everything: the grant was revoked, has expired, was removed.
        case all
        /// Changing: the grant was narrowed to read-only.
        case writing
    }

    /// Operations that end by themselves within this time are left to; whoever still waits then is released with EACCES.
    static let graceMicroseconds = 25_000
    /// Between two looks at what a write-back cache holds.
    static let stragglingMicroseconds: UInt32 = 5_000
    /// How long the backing file system may take to end the locks before they end without being waited for.
    static let unlockingMicroseconds = 250_000

    /// Closes the gate for everything but the kernel's write-back of what was written before. At once and without waiting: to be called for
    /// every scope that is withdrawn before `finish` is called for the first.
    public func shut(_ scope: Scope, _ withdrawal: Withdrawal) {
        if withdrawal == .writing { scope.wantsReadOnly.store(true, ordering: .releasing) }
        coordinator.close(scope.id, withdrawal == .all ? .flushing : .narrowing)
        if withdrawal == .all { records?.update(.begun, of: scope.id) }
    }

    /// Carries a withdrawal through and says what it did. The second call for a scope waits for the first and returns its outcome.
    /// `patience`: milliseconds to wait for write-back that makes no progress.
    ///
    /// Where a program keeps the kernel from forgetting something, the outcome is not confirmed and says what that is; all else is in force.
    /// `complete` says when that is over.
    ///
    /// Locking: the scope's `closing` lock (rank 1), which no request takes. Called by a thread that serves no requests.
    public func finish(_ scope: Scope, _ withdrawal: Withdrawal, patience: Int) -> ClosingOutcome {
        scope.closing.withLock { closing in
            if withdrawal == .all, let outcome = closing.outcome { return outcome }
            if withdrawal == .all, let rest = closing.rest, rest.withdrawal == .all { return rest.outcome }
            if withdrawal == .writing, !scope.wantsReadOnly.load(ordering: .acquiring) { return .done }
            let (outcome, invalidator) = close(scope, withdrawal, patience: patience)
            if withdrawal == .writing, outcome.isConfirmed { records?.update(isReadOnly: true, of: scope.id) }
            if !outcome.isConfirmed, let invalidator {
                closing.rest = (outcome, invalidator, withdrawal)
            } else if withdrawal == .all {
                closing.outcome = outcome
                scope.isClosed.store(true, ordering: .releasing)
                records?.update(.done, of: scope.id)
            }
            return outcome
        }
    }

    /// What `finish` has to say once the kernel has forgotten the rest as well; nil until then.
    ///
    /// Locking: the scope's `closing` lock.
    public func complete(_ scope: Scope, _ withdrawal: Withdrawal) -> ClosingOutcome? {
        scope.closing.withLock { closing in
            guard let rest = closing.rest else { return closing.outcome ?? .done }
            rest.invalidator.poll()
            guard rest.invalidator.isDone else { return nil }
            var outcome = rest.outcome
            outcome.isConfirmed = true
            outcome.unforgotten = []
            closing.rest = nil
            if rest.withdrawal == .all {
                closing.outcome = outcome
                scope.isClosed.store(true, ordering: .releasing)
                records?.update(.done, of: scope.id)
            }
            return outcome
        }
    }

    private func close(_ scope: Scope, _ withdrawal: Withdrawal, patience: Int) -> (ClosingOutcome, DataInvalidator?) {
        let began = Clock.monotonic
        // Before the mount there is nothing that the kernel could know.
        guard let notifier = session?.notifier else {
            coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
            if withdrawal == .all { beginRelease(of: scope) }
            return (.done, nil)
        }
        var outcome = ClosingOutcome()
        let gate = coordinator.gate(scope.id)
        let flushedBefore = gate.pointee.flushedBytes.load(ordering: .relaxed)
        shut(scope, withdrawal)
        refusedReadThrottle.withdrawals.wrappingAdd(1, ordering: .relaxed)
        defer { refusedReadThrottle.withdrawals.wrappingSubtract(1, ordering: .relaxed) }
        if withdrawal == .all { _ = locks.refuse(scope.id) }
        waiting.end(scope.id, withdrawal)

        // 1. Whoever is inside ends by itself, or is answered in its place. Before anything below, which waits for READs and WRITEs.
        var inside = coordinator.occupants(of: scope.id).filter { withdrawal == .all || $0.entry.isChange }
        let visited = inside.count
        defer { scope.progress.withLock { $0 = nil } }
        scope.progress.withLock { $0 = ClosingProgress(stage: .draining, total: UInt64(truncatingIfNeeded: visited)) }
        wait(upTo: Self.graceMicroseconds) {
            inside.removeAll { !coordinator.isInside($0) }
            return inside.isEmpty
        }
        var stuck: [Coordinator.Occupant] = []
        for occupant in inside where occupant.entry != .cacheWrite {
            release(occupant, withdrawal)
            stuck.append(occupant)
        }

        // 2. What the kernel still holds dirty is written back by the invalidation itself, while the gate lets cache writes through.
        // Attributes first: a write into the write-back cache then asks, is refused, and is not acknowledged.
        // Where the kernel opens by itself, nobody knows who may write: then of all, directories first, once for the rest as well.
        var asked = Set<UInt64>()
        let known = scope.nodes.count
        if kernelOpens, withdrawal == .all {
            prune(scope, notifier)
            asked = invalidateAttributes(of: scope.nodes.ids, notifier)
        }
        let writable = openForWriting(scope.nodes.ids)
        if !kernelOpens || withdrawal == .writing { for file in writable { _ = notifier.invalidateAttributes(NodeID(file)) } }
        scope.progress.withLock { $0 = ClosingProgress(stage: .flushing) }
        for round in 0..<8 where !writable.isEmpty {
            // Who was let in before may still be on the way to the cache with what it writes, and will be told that it is written.
            if policy.writeBack, round > 0 { usleep(Self.stragglingMicroseconds) }
            let before = gate.pointee.flushedBytes.load(ordering: .relaxed)
            scope.progress.withLock { $0?.done = before &- flushedBefore }
            launder(writable, scope, notifier, withdrawal, patience: patience, stuck: &stuck)
            if gate.pointee.flushedBytes.load(ordering: .relaxed) == before, round > 0 || !policy.writeBack { break }
        }

        // 3. Nothing passes any more.
        coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
        // Who was put aside while the gate was being closed.
        waiting.end(scope.id, withdrawal)
        waitForCacheWrites(scope, withdrawal, patience: patience, stuck: &stuck)

        // Ending a lock closes a file, which can hang as well. Others wait for these locks, so a program that keeps the kernel from forgetting keeps none.
        var unlocking: BackgroundTask?
        if withdrawal == .all { unlocking = BackgroundTask(mayHang: true) { [locks] in locks.releaseScope(scope.id) } }

        // 4. The kernel forgets.
        let invalidator = DataInvalidator(self, notifier)
        if withdrawal == .all {
            outcome.invalidatedInodes = max(UInt64(clamping: known), invalidateAll(scope, notifier, invalidator, besides: asked))
        } else {
            // Pages mapped for writing become read-only again, so that the next store asks.
            invalidator.add(writable)
            outcome.invalidatedInodes = UInt64(truncatingIfNeeded: writable.count)
        }
        follow(invalidator, scope)
        if withdrawal == .all { invalidateLate(scope, notifier, invalidator, since: began - Self.lateNanoseconds) }
        let unforgotten = invalidator.unfinished
        outcome.unforgotten = unforgotten.prefix(Self.namedAtMost).map { placeName($0, in: scope) }
        if withdrawal == .all {
            // Under write-back the kernel goes by its own size, and answers by that what lies at the end.
            if policy.writeBack {
                obscureSizes(of: scope.nodes.ids.filter { tree.nodes.find($0)?.pointee.type == S_IFREG && isOpen($0) }, notifier)
            }
            wait(upTo: Self.unlockingMicroseconds) { unlocking?.isDone ?? true }
        }

        stuck.removeAll { !coordinator.isInside($0) }
        outcome.pending = UInt64(truncatingIfNeeded: stuck.count)
        outcome.drained = UInt64(clamping: visited - stuck.count)
        outcome.flushedBytes = gate.pointee.flushedBytes.load(ordering: .relaxed) &- flushedBefore
        outcome.isConfirmed = unforgotten.isEmpty
        outcome.milliseconds = Double(Clock.monotonic - began) / 1e6
        if withdrawal == .all {
            beginRelease(of: scope)
            // Nearly always done in microseconds; then the filesystem can be unmounted when the command returns.
            wait(upTo: Self.unlockingMicroseconds) { scope.releaseState.load(ordering: .acquiring) != .underWay }
        }
        return (outcome, invalidator)
    }

    /// How far the withdrawal of a scope has come; nil when none is under way.
    public func progress(of scope: Scope) -> ClosingProgress? { scope.progress.withLock { $0 } }

    /// Answers a request in the place of a worker that is stuck in the backing file system.
    func release(_ occupant: Coordinator.Occupant, _ withdrawal: Withdrawal) {
        _ = session?.answer(slot: occupant.slot, error: withdrawal == .all ? EACCES : EROFS) { coordinator.isInside(occupant) }
    }

    /// By several threads where there are many: each takes some microseconds in the kernel, and waits for nobody.
    private func obscureSizes(of nodes: [UInt64], _ notifier: Notifier) {
        let obscure = { @Sendable (part: ArraySlice<UInt64>) in for node in part { _ = notifier.obscureSize(NodeID(node)) } }
        let threads =
            nodes.count < 1_000 ? 1 : min(4, max(1, Int(truncatingIfNeeded: sysconf(Int32(truncatingIfNeeded: _SC_NPROCESSORS_ONLN)))))
        let size = nodes.count / threads
        let tasks = (1..<threads).map { number in
            BackgroundTask { obscure(nodes[(number * size)..<(number == threads - 1 ? nodes.count : (number + 1) * size)]) }
        }
        obscure(nodes[..<(threads == 1 ? nodes.count : size)])
        for task in tasks { while !task.isDone { usleep(100) } }
    }

    /// Directories first. Returns of which the kernel has forgotten them; others may be on their way to it.
    private func invalidateAttributes(of nodes: [UInt64], _ notifier: Notifier) -> Set<UInt64> {
        var done = Set<UInt64>(minimumCapacity: nodes.count)
        for directories in [true, false] {
            for node in nodes where isDirectory(node) == directories {
                if notifier.invalidateAttributes(NodeID(node)) == 0 { done.insert(node) }
            }
        }
        return done
    }

    private func openForWriting(_ ids: [UInt64]) -> [UInt64] { ids.filter(isOpenForWriting) }

    func isOpenForWriting(_ id: UInt64) -> Bool {
        mayBeDirty(id)
    }

    /// Where the kernel opens files by itself, each may be.
    func isOpen(_ id: UInt64) -> Bool {
        kernelOpens || (tree.nodes.find(id)?.pointee.openers.load(ordering: .acquiring) ?? 0) > 0
    }

    func isDirectory(_ id: UInt64) -> Bool { tree.nodes.find(id)?.pointee.type == S_IFDIR }

    /// Asks `isDone` until it says so or the time is over. The first turns are short: nearly everything ends in microseconds.
    func wait(upTo microseconds: Int, _ isDone: () -> Bool) {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: microseconds) &* 1_000
        var backoff: UInt32 = 10
        while !isDone(), Clock.monotonic < deadline {
            usleep(backoff)
            backoff = min(backoff * 2, 500)
        }
    }

    /// Frees what a closed scope still has, once nobody is inside and the kernel has forgotten its nodes. True when done.
    public func reap(_ scope: Scope) -> Bool {
        guard coordinator.occupants(of: scope.id).isEmpty else { return false }
        scope.closing.withLock { closing in
            if !closing.isReleased {
                closing.isReleased = true
                records?.markReleased(scope.id)
                tree.forget(scope.rootNode, 1)
            }
        }
        beginRelease(of: scope)
        guard hasReleasedDescriptors(of: scope), scope.nodes.count == 0 else { return false }
        // Whoever forgot the last node may still be on its way out of it: the second look finds nobody.
        let isSecondLook = scope.closing.withLock { closing in
            defer { closing.isEmpty = true }
            return closing.isEmpty
        }
        guard isSecondLook else { return false }
        tree.removeScope(scope.id.rawValue)
        records?.remove(scope.id)
        droppedWrites.forget(scope.id.rawValue)
        lastRefused.forget(scope.id.rawValue)
        lostWrites.forget(scope.id.rawValue)
        return true
    }
}
