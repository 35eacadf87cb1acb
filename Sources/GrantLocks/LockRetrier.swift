import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem

/// The thread that retries all waiting requests below one grant.
///
/// A filesystem that hangs delays no other grant.
///
/// It retries requests that no owner of this mount blocks. It does so immediately after an unlock
/// here, and every few milliseconds, because only a retry shows that the host has released a lock.
/// A request that an owner of this mount blocks is not retried before that owner unlocks. A round
/// is limited to a fixed number of tries and steps, however many requests wait.
final class LockRetrier {
    private let scope: ScopeLocks
    private let slot: Int
    private let table: LockTable
    /// Files with requests that must be polled, the next one first.
    private var polled: [LockedFile] = []
    /// Requests for ranges, in a queue. Each is checked for a deadlock at intervals.
    ///
    /// A deadlock can arise as locks change owners.
    private var watched: [LockWaiter] = []
    private var firstWatched = 0
    /// Requests that seemed to be in a deadlock. The checked state may just have been changing.
    private var suspects: [LockWaiter] = []
    private var steps = 0
    private var nextTries: Int64 = 0

    /// The limit of retries in one round, and of steps that searches for deadlocks take.
    static let (triesInARound, stepsInARound) = (32, 4_096)

    init(_ scope: ScopeLocks, slot: Int, of table: LockTable) { (self.scope, self.slot, self.table) = (scope, slot, table) }

    /// Runs until no request has waited for a second.
    func serve() { while round() {} }

    private func round() -> Bool {
        let (spent, isAwaited) = PauseGate.run(table.host?.pauseGate) { turn() }
        if spent > 1_000_000 { usleep(UInt32(clamping: min(spent / 1_000, 100_000))) }
        if isAwaited {
            scope.wake.waitForAny(within: polled.isEmpty && suspects.isEmpty ? 50 : 4)
            return true
        }
        scope.wake.waitForAny(within: 1_000)
        return !PauseGate.run(table.host?.pauseGate) { end() }
    }

    /// Runs one turn. Returns its time in nanoseconds, and whether any request waits.
    private func turn() -> (spent: Int64, isAwaited: Bool) {
        let began = Clock.monotonic
        let (queued, interrupted, isAwaited) = scope.state.withLock { state -> ([LockedFile], [LockWaiter], Bool) in
            state.forgetRetired()
            defer { (state.queued, state.interrupted) = ([], []) }
            return (state.queued, state.interrupted, state.waiting > 0)
        }
        steps = Self.stepsInARound
        for waiter in interrupted where scope.take(waiter) { table.answer(waiter, EINTR) }
        for file in queued { look(at: file) }
        if began >= nextTries {
            tryAgain()
            watch()
            let now = Clock.monotonic
            // Even if a try takes long, most of the time is left for others.
            nextTries = now + max(3_500_000, (now - began) * 8)
        }
        return (Clock.monotonic - began, isAwaited)
    }

    private func end() -> Bool {
        let hasEnded = scope.state.withLock { state -> Bool in
            guard state.waiting == 0, state.queued.isEmpty, state.interrupted.isEmpty else { return false }
            state.slot = nil
            return true
        }
        if hasEnded { table.freeSlots.withLock { $0.append(slot) } }
        return hasEnded
    }

    // MARK: changed files

    /// Handles an unlock in a file, or a new request.
    private func look(at file: LockedFile) {
        let (waiters, hasWholeWaiters) = file.state.withLock { state -> ([LockWaiter], Bool) in
            state.isQueued = false
            var waiters = state.fresh
            // Earlier requests come first.
            if let freed = state.freed {
                waiters = state.waiters.dropLast(state.fresh.count).filter { $0.range?.overlaps(freed) == true } + waiters
            }
            let hasWholeWaiters = state.isWholeFreed
            (state.fresh, state.freed, state.isWholeFreed) = ([], nil, false)
            return (waiters, hasWholeWaiters)
        }
        _ = attempt(waiters, in: file)
        for waiter in waiters where !waiter.isWatched && !waiter.isTaken {
            waiter.isWatched = true
            watched.append(waiter)
        }
        if hasWholeWaiters { _ = retryWholeFile(of: file) }
    }

    // MARK: polling

    private func tryAgain() {
        let doubtful = suspects
        suspects = []
        for waiter in doubtful { if let file = scope.file(of: waiter) { attempt(waiter, in: file) } }
        var left = Self.triesInARound
        var visited = 0
        for file in polled {
            if left <= 0 { break }
            visited += 1
            left -= retryWholeFile(of: file) + retryPolled(in: file, upTo: left)
        }
        let done = polled.prefix(visited)
        polled =
            polled.dropFirst(visited)
            + done.filter { file in
                file.isPolled = file.state.withLock { state in !state.wholeWaiters.isEmpty || state.waiters.contains { $0.isPolled } }
                return file.isPolled
            }
    }

    /// Retries the requests of a file that owners outside of this mount block.
    ///
    /// Returns how many tries it took.
    private func retryPolled(in file: LockedFile, upTo limit: Int) -> Int {
        var waiters = file.state.withLock { $0.waiters.filter { $0.isPolled && !$0.isTaken } }
        if waiters.count > limit, limit > 0 {
            // A different part each time.
            let first = waiters.firstIndex { $0.number > file.lastTried } ?? 0
            waiters = Array((waiters[first...] + waiters[..<first]).prefix(limit))
            file.lastTried = waiters[limit - 1].number
        }
        return attempt(waiters, in: file)
    }

    /// Tries requests in order, and returns how many tries it took.
    ///
    /// Skips a request if an earlier one has failed for a part of its range.
    private func attempt(_ waiters: [LockWaiter], in file: LockedFile) -> Int {
        var tries = 0
        var failed: [LockedRange] = []
        for waiter in waiters {
            guard let range = waiter.range else { continue }
            if failed.contains(where: { $0.isPart(of: range) }) {
                waiter.isPolled = true
                continue
            }
            tries += 1
            attempt(waiter, in: file)
            if waiter.isPolled, !waiter.isTaken, failed.count < 8 { failed.append(range) }
        }
        return tries
    }

    /// Tries requests for a lock of the whole file, at most one of each kind.
    ///
    /// If one fails, the others of its kind fail too. Returns how many tries it took.
    private func retryWholeFile(of file: LockedFile) -> Int {
        let waiters = file.state.withLock { $0.wholeWaiters }
        if waiters.isEmpty { return 0 }
        var tries = 0
        var isShared = false
        for waiter in waiters {
            guard let lockRequest = lockRequest(of: waiter), case .whole(_, let operation) = lockRequest else { continue }
            let isExclusive = operation & LOCK_EX != 0
            if isExclusive, isShared { continue }
            tries += 1
            attempt(waiter, in: file)
            if waiter.isTaken { continue }
            if !isExclusive { break }
            isShared = true
        }
        return tries
    }

    private func lockRequest(of waiter: LockWaiter) -> LockRequest? { scope.state.withLock { _ in waiter.lockRequest } }

    // MARK: one waiter

    /// Tries one request.
    ///
    /// `certain`: tries even if an owner of this mount seems to block it, because the filesystem
    /// may have lost that lock.
    private func attempt(_ waiter: LockWaiter, in file: LockedFile, certain: Bool = false) {
        guard !waiter.isTaken, let lockRequest = lockRequest(of: waiter) else { return }
        let isBlocked =
            certain ? false : waiter.range.map { range in file.state.withLock { $0.held.isBlocked(range, for: waiter.owner) } } ?? false
        var error = EAGAIN
        if waiter.interrupted.load(ordering: .acquiring) {
            error = EINTR
        } else if !isBlocked {
            guard let host = table.host, host.coordinator.enter(scope.id, for: .closing, slot: slot) == .enter else {
                if scope.take(waiter) { table.answer(waiter, EACCES) }
                return
            }
            error = -table.attempt(lockRequest)
            host.coordinator.leave(slot: slot)
        }
        if error == EAGAIN {
            waiter.isPolled = !isBlocked && !certain
            if waiter.isPolled, !file.isPolled {
                file.isPolled = true
                polled.append(file)
            }
            if mayKeepWaiting(waiter) { return }
            error = EDEADLK
        }
        complete(waiter, lockRequest, error)
    }

    private func complete(_ waiter: LockWaiter, _ lockRequest: LockRequest, _ error: Int32) {
        guard scope.take(waiter) else {
            if error == 0 { table.undo(lockRequest, of: waiter.node) }
            return
        }
        guard error == 0, let host = table.host, host.mustRevalidate(waiter.node) else {
            return table.answer(waiter, error)
        }
        table.refresh(table.granted(waiter, lockRequest))
    }

    // MARK: deadlocks

    /// Whether a request continues to wait. Returns false if it is in a deadlock.
    private func mayKeepWaiting(_ waiter: LockWaiter) -> Bool {
        // The next round has more steps, and no request is skipped permanently.
        guard waiter.range != nil, steps > 0 else { return true }
        var left = min(steps, LockTable.searchLimit)
        let given = left
        let isInCircle = table.isInDeadlock(waiter, steps: &left)
        steps -= max(1, given - left)
        waiter.suspicions = isInCircle ? waiter.suspicions + 1 : 0
        if isInCircle, waiter.suspicions < 2 { suspects.append(waiter) }
        return waiter.suspicions < 2
    }

    /// Checks as many watched requests as there are steps for, and tries one.
    private func watch() {
        var left = watched.count - firstWatched
        var isFirst = true
        while left > 0, steps > 0 {
            left -= 1
            let waiter = watched[firstWatched]
            firstWatched += 1
            if waiter.isTaken { continue }
            watched.append(waiter)
            if isFirst, !waiter.isPolled, waiter.suspicions == 0, let file = scope.file(of: waiter) {
                isFirst = false
                attempt(waiter, in: file, certain: true)
                continue
            }
            // Suspects have their own turn.
            if waiter.suspicions == 0, !mayKeepWaiting(waiter), let lockRequest = lockRequest(of: waiter) {
                complete(waiter, lockRequest, EDEADLK)
            }
        }
        if firstWatched > 64, firstWatched * 2 > watched.count {
            watched.removeFirst(firstWatched)
            firstWatched = 0
        }
    }
}
