import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Requests that wait for claims without a worker.
///
/// They are parked as the kernel wrote them, and served from the start when the claim has ended.
/// This code is reached only if a scope's gate says that claims are held there.
///
/// Locking: `state` is rank 2. While it is held, no file is accessed and no reply is sent.
final class ClaimWaitQueue: @unchecked Sendable {
    // Sendable: `view` is set before the first request.
    nonisolated(unsafe) unowned var view: ViewFS!
    private let state = Lock(State())

    private struct State {
        var holds: [UInt64: Hold] = [:]
        /// By the kernel's number for the request.
        var waiting: [UInt64: Waiter] = [:]
        /// Whether a thread checks for expired waiters.
        var hasTimer = false
    }

    private struct Waiter {
        let scope: UInt32
        /// The file or directory that the request works on.
        let node: UInt64
        let hold: UInt64
        let deadline: Int64?
        /// Recorded if the request is refused.
        let call: AuditTrail.PendingCall?
    }

    /// A claim that binds operations through the mount.
    struct Hold {
        let process: Int32
        let patience: Int64?
        /// The scopes it binds, its accesses, and the uses that cover a whole scope (`whole`).
        var scopes: Set<UInt32>
        var accesses: [ItemAccess]
        var whole: [UInt32: [ItemUse]]
        /// Whether reads of data pass.
        ///
        /// They pass until the kernel has dropped its pages, since the invalidation of pages waits
        /// for such reads.
        var letsReadsPass = true
        /// The file that is being invalidated.
        ///
        /// Requests on it pass meanwhile, because some of them hold its pages locked.
        var flushing: UInt64?
        /// How many pages of that file went to a caller that may store into them.
        var mapped = 0
    }

    /// How an operation uses the files that it touches.
    struct Use {
        var uses: [ItemUse]
        /// It reads data, for the kernel's cache or past it.
        var readsData = false
        /// Its caller may map the data it reads and store into it.
        var mayMap = false
        /// The file, unless the operation works on a name in a directory.
        var node: UInt64?
    }

    // MARK: handing over

    /// The claims that bind. nil while one of them is still beginning to.
    var settledHolds: [UInt64: Hold]? {
        state.withLock { state in
            state.holds.values.allSatisfy { !$0.letsReadsPass && $0.flushing == nil } ? state.holds : nil
        }
    }

    /// How a claim binds. nil while it does not, or is only beginning to.
    func hold(_ id: UInt64) -> Hold? {
        state.withLock { state in state.holds[id].flatMap { $0.letsReadsPass || $0.flushing != nil ? nil : $0 } }
    }

    // MARK: beginning and ending claims

    func begin(_ id: UInt64, _ hold: Hold) {
        state.withLock { state in
            state.holds[id] = hold
            for scope in hold.scopes { mark(scope, true) }
        }
    }

    /// Makes reads of data wait as well.
    func holdReads(_ id: UInt64) { state.withLock { $0.holds[id]?.letsReadsPass = false } }

    /// Makes the kernel write back and drop a file, by `body`.
    ///
    /// Requests on the file pass meanwhile, because parked ones may hold its pages locked. The step
    /// is repeated if a page went to a caller that may have stored into it.
    func flush(_ id: UInt64, _ node: UInt64, _ body: () -> Void) {
        for _ in 0..<8 {
            let ready = state.withLock { state -> [UInt64] in
                state.holds[id]?.flushing = node
                state.holds[id]?.mapped = 0
                let ready = state.waiting.filter { $0.value.hold == id && $0.value.node == node }.keys.sorted()
                for unique in ready { state.waiting[unique] = nil }
                return ready
            }
            view.session?.resume(ready)
            body()
            let mapped = state.withLock { state -> Int in
                state.holds[id]?.flushing = nil
                return state.holds[id]?.mapped ?? 0
            }
            if mapped == 0 { return }
        }
    }

    /// Ends a claim: its waiters are resumed and check for other claims.
    func end(_ id: UInt64) -> Hold? {
        let (hold, ready) = state.withLock { state -> (Hold?, [UInt64]) in
            guard let hold = state.holds.removeValue(forKey: id) else { return (nil, []) }
            for scope in hold.scopes where !state.holds.values.contains(where: { $0.scopes.contains(scope) }) { mark(scope, false) }
            let ready = state.waiting.filter { $0.value.hold == id }.keys.sorted()
            for unique in ready { state.waiting[unique] = nil }
            return (hold, ready)
        }
        view.session?.resume(ready)
        return hold
    }

    private func mark(_ scope: UInt32, _ isClaimed: Bool) {
        if let nodes = view.tree.scope(scope) {
            if isClaimed {
                nodes.cacheBypass.bitwiseOr(ScopeNodes.claims, ordering: .relaxed)
            } else {
                nodes.cacheBypass.bitwiseAnd(~ScopeNodes.claims, ordering: .relaxed)
            }
        }
        view.coordinator.setClaimed(ScopeID(rawValue: scope), isClaimed)
    }

    /// Ends the waiters of a withdrawn scope, or resumes those of a narrowed one.
    ///
    /// In a withdrawn scope their requests fail with EACCES. In a narrowed scope changes are then
    /// refused.
    func end(_ scope: ScopeID, _ withdrawal: ViewFS.Withdrawal) {
        let found = state.withLock { state -> [UInt64: Waiter] in
            let found = state.waiting.filter { $0.value.scope == scope.rawValue }
            for unique in found.keys { state.waiting[unique] = nil }
            return found
        }
        guard !found.isEmpty, let session = view.session else { return }
        if withdrawal == .writing { return session.resume(found.keys.sorted()) }
        // A withdrawal does not wait for the audit log.
        for (unique, waiter) in found {
            recordOutcome(waiter.call, error: EACCES)
            session.answer(parked: unique, error: EACCES)
        }
    }

    /// Removes a request that is about to be answered because it was interrupted.
    func cancel(_ unique: UInt64) {
        if let waiter = state.withLock({ $0.waiting.removeValue(forKey: unique) }) { recordOutcome(waiter.call, error: EINTR) }
    }

    private func recordOutcome(_ call: AuditTrail.PendingCall?, error: Int32) {
        if let call { view.audit?.record(call, error: error) }
    }

    // MARK: operations

    /// The claim for which an operation must wait. Returns nil if there is none.
    ///
    /// `item` may access files.
    func blocker(_ scope: UInt32, _ use: Use, _ caller: Caller, _ item: () -> OperationItem) -> UInt64? {
        let holds = state.withLock { state -> [UInt64: Hold] in
            var holds = state.holds.filter { $0.value.scopes.contains(scope) && !(use.readsData && $0.value.letsReadsPass) }
            if let node = use.node {
                for (id, hold) in holds where hold.flushing == node {
                    holds[id] = nil
                    if use.mayMap { state.holds[id]?.mapped += 1 }
                }
            }
            return holds
        }
        var touched: OperationItem?
        for (id, hold) in holds.sorted(by: { $0.key < $1.key }) {
            var isHit = hold.whole[scope]?.contains { held in use.uses.contains { held.excludes($0) } } ?? false
            for access in hold.accesses where !isHit && use.uses.contains(where: { access.use.excludes($0) }) {
                if touched == nil { touched = item() }
                isHit = touched?.isCovered(by: access.item) ?? true
            }
            guard isHit else { continue }
            if caller.pid == getpid() || ProcessAncestry.process(of: caller.pid, isOrComesFrom: hold.process) { continue }
            return id
        }
        return nil
    }

    /// Parks a request until the claim has ended. Its worker has left the scope.
    ///
    /// `call`: recorded if the request is refused.
    func wait(_ request: consuming Request, for hold: UInt64, scope: UInt32, node: UInt64, _ call: AuditTrail.PendingCall?) {
        guard let session = view.session else { return }
        let unique: UInt64
        switch session.park(request, scope: scope) {
        case .parked(let number): unique = number
        case .answered(let error): return recordOutcome(call, error: error)
        }
        let (isOver, startsTimer) = state.withLock { state -> (Bool, Bool) in
            guard let held = state.holds[hold], held.flushing != node else { return (true, false) }
            state.waiting[unique] = Waiter(
                scope: scope, node: node, hold: hold, deadline: held.patience.map { Clock.monotonic + $0 }, call: call)
            let starts = held.patience != nil && !state.hasTimer
            if starts { state.hasTimer = true }
            return (false, starts)
        }
        if isOver { return session.resume([unique]) }
        if startsTimer { _ = BackgroundTask { [self] in runTimer() } }
        // It was interrupted before it was in the table.
        if !session.isParked(unique) { return cancel(unique) }
        // A revoker closes the gate and then answers the waiters: one of the two sees the other.
        if view.coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.read),
            state.withLock({ $0.waiting.removeValue(forKey: unique) }) != nil
        {
            recordOutcome(call, error: EACCES)
            session.answer(parked: unique, error: EACCES)
        }
    }

    /// Answers expired waiters, as long as any waiter has a deadline.
    private func runTimer() {
        while true {
            usleep(20_000)
            let now = Clock.monotonic
            let (late, isOver) = state.withLock { state -> ([UInt64: Waiter], Bool) in
                let late = state.waiting.filter { $0.value.deadline.map { $0 <= now } ?? false }
                for unique in late.keys { state.waiting[unique] = nil }
                let isOver = !state.waiting.values.contains { $0.deadline != nil }
                if isOver { state.hasTimer = false }
                return (late, isOver)
            }
            for (unique, waiter) in late {
                let answer: @Sendable () -> Void = { [view] in view?.session?.answer(parked: unique, error: EAGAIN) }
                if let audit = view.audit, let call = waiter.call {
                    audit.record(call, error: EAGAIN, answer: answer)
                } else {
                    answer()
                }
            }
            if isOver { return }
        }
    }

    /// The number of waiting operations.
    var count: Int { state.withLock { $0.waiting.count } }
}
