import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

// Revokes grants, from the durable withdrawal until no access through the scope succeeds. The order
// of the steps prevents leaks: see docs/ARCHITECTURE.md, the way of a revocation.
extension ViewFS {
    /// The access that a closing withdraws.
    public enum Withdrawal: Sendable {
        /// All access: the grant was revoked, has expired, or was removed.
        case all
        /// Changes: the grant was narrowed to read-only.
        case writing
    }

    /// How long operations inside may take to end by themselves.
    ///
    /// The remaining ones then fail with EACCES.
    static let graceMicroseconds = 25_000
    /// The pause between two passes over a write-back cache.
    static let stragglingMicroseconds: UInt32 = 5_000
    /// How long a withdrawal waits for the backing filesystem to end the locks.
    ///
    /// After that they end in the background.
    static let unlockingMicroseconds = 250_000

    /// Closes the gate for everything except the kernel's write-back of earlier writes.
    ///
    /// Takes effect immediately and never waits. Call it for every withdrawn scope before `finish`
    /// is called for the first.
    public func shut(_ scope: Scope, _ withdrawal: Withdrawal) {
        if withdrawal == .writing { scope.wantsReadOnly.store(true, ordering: .releasing) }
        // The gate of an offered scope is shut already, and nobody may open it from now on.
        if withdrawal == .all { coordinator.endOffer(scope.id) }
        coordinator.close(scope.id, withdrawal == .all ? .flushing : .narrowing)
        if withdrawal == .all { records?.update(.begun, of: scope.id) }
    }

    /// Carries a withdrawal out and returns its outcome.
    ///
    /// If a program prevents an invalidation in the kernel, the outcome is not confirmed and names
    /// the file. Everything else is in force. `complete` tells when that is over. The second call
    /// for a scope waits for the first and returns its outcome.
    ///
    /// Locking: the scope's `closing` lock (rank 1), which no request takes. Called by a thread
    /// that serves no requests.
    ///
    /// - Parameter patience: Milliseconds to wait for write-back that makes no progress.
    public func finish(_ scope: Scope, _ withdrawal: Withdrawal, patience: Int) -> WithdrawalOutcome {
        scope.closing.withLock { closing in
            if withdrawal == .all, let outcome = closing.outcome { return outcome }
            if withdrawal == .all, let rest = closing.rest, rest.withdrawal == .all { return rest.outcome }
            if withdrawal == .writing, !scope.wantsReadOnly.load(ordering: .acquiring) { return .done }
            let (outcome, rest) = close(scope, withdrawal, patience: patience)
            if withdrawal == .writing, outcome.isConfirmed { records?.update(isReadOnly: true, of: scope.id) }
            if !outcome.isConfirmed, let rest {
                closing.rest = (outcome, rest, withdrawal)
            } else if withdrawal == .all {
                closing.outcome = outcome
                scope.isClosed.store(true, ordering: .releasing)
                records?.update(.done, of: scope.id)
            }
            return outcome
        }
    }

    /// The final outcome of `finish`, once the kernel has invalidated the rest.
    ///
    /// Until then it is not confirmed, and has the directories that are blocked by now.
    ///
    /// Locking: the scope's `closing` lock.
    public func complete(_ scope: Scope, _ withdrawal: Withdrawal) -> WithdrawalOutcome {
        scope.closing.withLock { closing in
            guard let rest = closing.rest else { return closing.outcome ?? .done }
            var outcome = rest.outcome
            guard rest.work.poll() else {
                outcome.blockedDirectories = blockedDirectories(of: rest.work)
                return outcome
            }
            outcome.isConfirmed = true
            (outcome.unforgotten, outcome.processes, outcome.blockedDirectories) = ([], [], [])
            let inside = coordinator.occupants(of: scope.id).filter { rest.withdrawal == .all || $0.entry.isChange }
            outcome.pending = UInt64(truncatingIfNeeded: inside.count)
            closing.rest = nil
            if rest.withdrawal == .all {
                closing.outcome = outcome
                scope.isClosed.store(true, ordering: .releasing)
                records?.update(.done, of: scope.id)
            }
            return outcome
        }
    }

    /// Carries a withdrawal out. Also returns the remaining work, nil before the mount.
    private func close(_ scope: Scope, _ withdrawal: Withdrawal, patience: Int) -> (WithdrawalOutcome, WithdrawalRest?) {
        let began = Clock.monotonic
        // Before the mount the kernel has cached nothing.
        guard let notifier = session?.notifier else {
            coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
            if withdrawal == .all { beginRelease(of: scope) }
            return (.done, nil)
        }
        var outcome = WithdrawalOutcome()
        let gate = coordinator.gate(scope.id)
        let flushedBefore = gate.pointee.flushedBytes.load(ordering: .relaxed)
        shut(scope, withdrawal)
        refusedReadThrottle.withdrawals.wrappingAdd(1, ordering: .relaxed)
        defer { refusedReadThrottle.withdrawals.wrappingSubtract(1, ordering: .relaxed) }
        if withdrawal == .all { _ = locks.refuse(scope.id) }
        waiting.end(scope.id, withdrawal)
        if withdrawal == .all { offers.refuse(scope) }

        // 1. Operations inside end by themselves, or are answered in their workers' place. First,
        //    because the steps below wait for READs and WRITEs.
        var inside = coordinator.occupants(of: scope.id).filter { withdrawal == .all || $0.entry.isChange }
        let visited = inside.count
        defer { scope.progress.withLock { $0 = nil } }
        scope.progress.withLock { $0 = WithdrawalProgress(stage: .draining, total: UInt64(truncatingIfNeeded: visited)) }
        wait(upTo: Self.graceMicroseconds) {
            inside.removeAll { !coordinator.isInside($0) }
            return inside.isEmpty
        }
        var stuck: [Coordinator.Occupant] = []
        for occupant in inside where occupant.entry != .cacheWrite {
            release(occupant, withdrawal)
            stuck.append(occupant)
        }
        let changes = ChangesUnderWay(self)
        changes.add(stuck)
        let late = withdrawal == .all ? LateReplies(self, scope, notifier) : nil

        // 2. The kernel writes back while the gate lets that through. Attributes first, so that new
        //    cached writes fail: of writable files, or of all if openers are unknown.
        var asked = Set<UInt64>()
        let known = scope.nodes.count
        if kernelOpens, withdrawal == .all {
            prune(scope, notifier)
            asked = invalidateAttributes(of: scope.nodes.ids, notifier)
        }
        let writable = openForWriting(scope.nodes.ids)
        if !kernelOpens || withdrawal == .writing { for file in writable { _ = notifier.invalidateAttributes(NodeID(file)) } }
        scope.progress.withLock { $0 = WithdrawalProgress(stage: .flushing) }
        for round in 0..<8 where !writable.isEmpty {
            // A write that was admitted before may still be on its way to the cache, and will be
            // acknowledged.
            if policy.writeBack, round > 0 { usleep(Self.stragglingMicroseconds) }
            let before = gate.pointee.flushedBytes.load(ordering: .relaxed)
            scope.progress.withLock { $0?.done = before &- flushedBefore }
            launder(writable, scope, notifier, withdrawal, patience: patience, stuck: &stuck)
            if gate.pointee.flushedBytes.load(ordering: .relaxed) == before, round > 0 || !policy.writeBack { break }
        }

        // 3. Shuts the gate: no operation passes any more.
        coordinator.close(scope.id, withdrawal == .all ? .shut : .readOnly)
        // Requests that were parked while the gate was being closed.
        waiting.end(scope.id, withdrawal)
        waitForCacheWrites(scope, withdrawal, patience: patience, stuck: &stuck)

        // Ending a lock closes a file, which can hang. Other programs wait for these locks, so they
        // end even if a program prevents an invalidation.
        var unlocking: BackgroundTask?
        if withdrawal == .all { unlocking = BackgroundTask(mayHang: true) { [locks] in locks.releaseScope(scope.id) } }

        // 4. Invalidates the kernel's caches.
        let invalidator = DataInvalidator(self, notifier)
        if withdrawal == .all {
            outcome.invalidatedInodes = max(UInt64(clamping: known), invalidateAll(scope, notifier, invalidator, besides: asked))
        } else {
            // Pages mapped for writing become read-only again, so that the next store sends a
            // request.
            invalidator.add(writable)
            outcome.invalidatedInodes = UInt64(truncatingIfNeeded: writable.count)
        }
        follow(invalidator, scope)
        let rest = WithdrawalRest(invalidator: invalidator, late: late, changes: changes)
        let isDone = waitFor(rest, scope, patience: patience)
        if !isDone {
            outcome.unforgotten = rest.nodes(in: tree).prefix(Self.namedAtMost).map { placeName($0, in: scope) }
            outcome.blockedDirectories = blockedDirectories(of: rest)
        }
        if withdrawal == .all {
            // With write-back the kernel trusts its own sizes, and by them answers requests for
            // data at the end of a file.
            if policy.writeBack {
                obscureSizes(of: scope.nodes.ids.filter { tree.nodes.find($0)?.pointee.type == S_IFREG && isOpen($0) }, notifier)
            }
            wait(upTo: Self.unlockingMicroseconds) { unlocking?.isDone ?? true }
        }

        stuck.removeAll { !coordinator.isInside($0) }
        outcome.pending = UInt64(truncatingIfNeeded: stuck.count)
        outcome.drained = UInt64(clamping: visited - stuck.count)
        outcome.flushedBytes = gate.pointee.flushedBytes.load(ordering: .relaxed) &- flushedBefore
        outcome.isConfirmed = isDone
        if !isDone {
            InjectedFault.stop(at: "naming")
            outcome.processes = starvedProcesses(of: scope)
        }
        outcome.milliseconds = Double(Clock.monotonic - began) / 1e6
        if withdrawal == .all {
            beginRelease(of: scope)
            // Usually this takes microseconds, and the filesystem can be unmounted when the command
            // returns.
            wait(upTo: Self.unlockingMicroseconds) { scope.releaseState.load(ordering: .acquiring) != .underWay }
        }
        return (outcome, rest)
    }

    private func blockedDirectories(of rest: WithdrawalRest) -> [UInt64] {
        Array(rest.invalidator.unfinishedDirectories.prefix(Self.blockedAtMost))
    }

    /// Waits for late replies and for running changes. Returns whether none is left.
    private func waitFor(_ rest: WithdrawalRest, _ scope: Scope, patience: Int) -> Bool {
        rest.late?.add(rest.invalidator.unknown.withLock { $0 })
        var (isDone, polls) = (rest.poll(), 0)
        wait(upTo: rest.changes.isEmpty ? WithdrawalRest.microseconds : patience * 1_000) {
            if isDone { return true }
            polls += 1
            // Nearly all of them only need a moment.
            if polls > 5 { hastenCallers(in: [scope.id.rawValue]) }
            isDone = rest.poll()
            return isDone
        }
        return isDone
    }

    /// The progress of a scope's withdrawal. Returns nil if none is running.
    public func progress(of scope: Scope) -> WithdrawalProgress? { scope.progress.withLock { $0 } }

    /// Answers a request in place of a worker that is stuck in the backing filesystem.
    func release(_ occupant: Coordinator.Occupant, _ withdrawal: Withdrawal) {
        _ = session?.answer(slot: occupant.slot, error: withdrawal == .all ? EACCES : EROFS) { coordinator.isInside(occupant) }
    }

    /// Hides the sizes of files that stay open: see `Notifier.obscureSize`.
    ///
    /// Many files are handled by several threads. Each call takes some microseconds in the kernel
    /// and does not wait.
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

    /// Invalidates attributes, directories first, and returns the nodes for which that succeeded.
    ///
    /// Replies about the others may be on their way to the kernel.
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

    /// Whether the kernel may have dirty pages of a file, or get some.
    func isOpenForWriting(_ id: UInt64) -> Bool {
        mayBeDirty(id)
    }

    /// Whether a node may be open. If the kernel opens files by itself, each node may be.
    func isOpen(_ id: UInt64) -> Bool {
        kernelOpens || (tree.nodes.find(id)?.pointee.openers.load(ordering: .acquiring) ?? 0) > 0
    }

    func isDirectory(_ id: UInt64) -> Bool { tree.nodes.find(id)?.pointee.type == S_IFDIR }

    /// Polls `isDone` until it returns true or the time is over.
    ///
    /// The first intervals are short, because nearly everything ends in microseconds.
    func wait(upTo microseconds: Int, _ isDone: () -> Bool) {
        let deadline = Clock.monotonic + Int64(truncatingIfNeeded: microseconds) &* 1_000
        var backoff: UInt32 = 10
        while !isDone(), Clock.monotonic < deadline {
            usleep(backoff)
            backoff = min(backoff * 2, 500)
        }
    }

    /// Frees the rest of a closed scope. Returns whether that is done.
    ///
    /// It waits until no operation is inside and the kernel has forgotten the scope's nodes.
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
        // The worker that forgot the last node may still be leaving the scope: only a second check
        // is certain.
        let isSecondLook = scope.closing.withLock { closing in
            defer { closing.isEmpty = true }
            return closing.isEmpty
        }
        guard isSecondLook else { return false }
        tree.removeScope(scope.id.rawValue)
        records?.remove(scope.id)
        droppedWrites.forget(scope.id.rawValue)
        lastRefused.forget(scope.id.rawValue)
        _ = ruleRefusals.take(scope.id.rawValue)
        lostWrites.forget(scope.id.rawValue)
        return true
    }
}
