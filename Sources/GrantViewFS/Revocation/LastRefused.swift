import GrantCoordinator
import GrantFUSE
import GrantSystem

/// The last refused caller of each scope, with the name of its process.
///
/// The name is read immediately, because many processes have ended by the time of a report.
///
/// Locking: rank 2, held for a moment.
public final class LastRefused: Sendable {
    public struct RefusedCaller: Sendable {
        public let uid: UInt32
        /// The process and its name: see `ProcessName.ofProcess`.
        public let pid: Int32
        public let program: [UInt8]

        init(_ caller: Caller) {
            uid = caller.uid
            (pid, program) = ProcessName.ofProcess(withThread: caller.pid)
        }
    }

    private let last = Lock<[UInt32: RefusedCaller]>([:])

    func record(_ caller: Caller, in scope: UInt32) {
        let refuser = RefusedCaller(caller)
        last.withLock { $0[scope] = refuser }
    }

    func last(in scope: UInt32) -> RefusedCaller? { last.withLock { $0[scope] } }
    func forget(_ scope: UInt32) { last.withLock { _ = $0.removeValue(forKey: scope) } }
}

extension ViewFS {
    /// Counts a refusal and records its caller.
    @inline(never)
    func countDenial(_ caller: Caller, in scope: UInt32) {
        lastRefused.record(caller, in: scope)
        coordinator.countDenial(ScopeID(rawValue: scope))
    }

    /// Refused operations of a scope since the last call, and the last caller. Those that its rules refused are counted apart.
    public func takeDenials(of scope: Scope) -> (count: UInt64, last: LastRefused.RefusedCaller?, ruled: RuleRefusals.Report?) {
        let count = coordinator.takeDenials(scope.id)
        let ruled = takeRuleRefusals(of: scope, atMost: count)
        return (count &- (ruled?.count ?? 0), lastRefused.last(in: scope.id.rawValue), ruled)
    }
}
