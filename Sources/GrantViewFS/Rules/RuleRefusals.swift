import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

/// The first operation of each scope that its rules refused since the last report.
///
/// Locking: its own, rank 2, held for a moment.
public final class RuleRefusals: Sendable {
    /// What was refused in a scope since the last report.
    public struct Report: Sendable {
        public let count: UInt64
        /// The first caller, and the path on the host, if it is known.
        public let caller: LastRefused.RefusedCaller?
        public let path: [UInt8]?
        public let decision: RuleDecision?
    }

    struct Refusal: Sendable {
        let caller: LastRefused.RefusedCaller
        /// The file or directory, or the directory of `name`.
        let node: UInt64
        let name: [UInt8]?
    }

    private let first = Lock<[UInt32: Refusal]>([:])

    func record(_ caller: Caller, _ node: UInt64, _ name: UnsafePointer<CChar>?, in scope: UInt32) {
        let name = name.map { Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
        let refusal = Refusal(caller: LastRefused.RefusedCaller(caller), node: node, name: name)
        first.withLock { $0[scope] = refusal }
    }

    func take(_ scope: UInt32) -> Refusal? { first.withLock { $0.removeValue(forKey: scope) } }
}

extension ViewFS {
    /// Counts the refused lookup of a hidden name.
    @inline(never)
    func countHidden(_ name: UnsafePointer<CChar>, in directory: Directory, for caller: Caller) {
        if directory.node.pointee.withOwner({ $0.ruled.hasRules }) { countRefusal(of: name, in: directory, for: caller) }
    }

    /// Counts the refusal of an operation on a name.
    @inline(never)
    func countRefusal(of name: UnsafePointer<CChar>, in directory: Directory, for caller: Caller) {
        countRefusal(of: directory.id.rawValue, directory.node, name, for: caller)
        coordinator.countDenial(ScopeID(rawValue: directory.node.pointee.scope))
    }

    /// Counts the refused change of a protected file or directory. `refuse` counts it with other refusals.
    func countRefusal(of id: UInt64, for caller: Caller) {
        guard let node = tree.nodes.find(id) else { return }
        countRefusal(of: id, node, nil, for: caller)
    }

    private func countRefusal(of id: UInt64, _ node: NodePointer, _ name: UnsafePointer<CChar>?, for caller: Caller) {
        // The caller of the first one is looked up, because that takes time.
        let earlier = node.pointee.withOwner { $0.ruled.refusals.wrappingAdd(1, ordering: .relaxed).oldValue }
        if earlier == 0 { ruleRefusals.record(caller, id, name, in: node.pointee.scope) }
    }

    /// Returns what the rules of a scope refused since the last call. Calls no filesystem.
    ///
    /// - Parameter limit: The number of all refusals. A refusal is counted among those of the rules first.
    func takeRuleRefusals(of scope: Scope, atMost limit: UInt64) -> RuleRefusals.Report? {
        let refusals = scope.nodes.ruled.refusals.exchange(0, ordering: .relaxed)
        if refusals > limit { scope.nodes.ruled.refusals.wrappingAdd(refusals - limit, ordering: .relaxed) }
        let count = min(refusals, limit)
        if count == 0 { return nil }
        guard let first = ruleRefusals.take(scope.id.rawValue), let above = tree.knownPath(of: first.node, in: scope.nodes) else {
            return RuleRefusals.Report(count: count, caller: nil, path: nil, decision: nil)
        }
        let path = first.name.map { above + [UInt8(ascii: "/")] + $0 } ?? above
        return RuleRefusals.Report(count: count, caller: first.caller, path: path, decision: decision(on: path, of: first, in: scope))
    }

    private func decision(on path: [UInt8], of refusal: RuleRefusals.Refusal, in scope: Scope) -> RuleDecision? {
        guard let top = self.path(of: scope), path.starts(with: top + [UInt8(ascii: "/")]) else { return nil }
        let (rules, place) = (self.rules(of: scope), Array(path.dropFirst(top.count + 1)))
        // Some patterns match directories alone, and some match this spelling only where case is ignored.
        let kinds = refusal.name == nil ? [isDirectory(refusal.node)] : [false, true]
        for (ignoresCase, isDirectory) in kinds.map({ (false, $0) }) + kinds.map({ (true, $0) }) {
            if let decision = rules.decision(on: place, isDirectory: isDirectory, ignoresCase: { _ in ignoresCase }) { return decision }
        }
        return nil
    }
}
