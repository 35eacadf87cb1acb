import GrantCoordinator
import GrantFUSE
import GrantSystem
import GrantViewTree

// Narrows grants to read-only while files are open for writing, and widens them again. A narrowing
// is carried out like a revocation (`finish`).
extension ViewFS {
    /// Allows writes again after a read-only grant was widened.
    ///
    /// Does nothing if the grant has become read-only again.
    ///
    /// Locking: the scope's `closing` lock. A running narrowing is completed first.
    public func widen(_ scope: Scope) {
        scope.closing.withLock { _ in
            if scope.wantsReadOnly.load(ordering: .acquiring) { return }
            droppedWrites.forget(scope.id.rawValue)
            records?.update(isReadOnly: false, of: scope.id)
            coordinator.widen(scope.id)
        }
    }

    /// Whether the scope is meant to be read-only.
    public func wantsReadOnly(_ scope: Scope) -> Bool { scope.wantsReadOnly.load(ordering: .acquiring) }

    /// Records that the grant should be read-write again. `widen` carries it out.
    public func wantWriting(_ scope: Scope) { scope.wantsReadOnly.store(false, ordering: .releasing) }

    /// Whether the kernel must ask before it lets a program write to the file.
    ///
    /// With write-back it takes write(2) into its cache without a request, with one exception.
    /// After it got new attributes, it asks before the next write whether the file has
    /// capabilities, and removes them if so. A read-only grant refuses the removal (EROFS), and the
    /// write fails with it (fs/inode.c, file_remove_privs, and security/commoncap.c,
    /// cap_inode_need_killpriv).
    ///
    /// So the daemon reports capabilities for a file that has been open for writing since before
    /// its grant became read-only. Reads are not affected.
    func mustAskToWrite(_ node: NodePointer) -> Bool {
        !kernelOpens && policy.writeBack && node.pointee.writers.load(ordering: .relaxed) > 0
            && (refusesWriting(node.pointee.scope) || refusal(by: node.pointee.containment, .write) == .readOnly)
    }

    @inline(__always)
    private func refusesWriting(_ scope: UInt32) -> Bool { coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.write) }

    /// Drops write-back that a gate has refused, and reports it as written.
    ///
    /// An error would make close(2) fail, and syncfs(2) for holders of other grants, because the
    /// kernel records it for the whole filesystem (include/linux/pagemap.h, mapping_set_error). A
    /// program that depends on its data calls fsync(2) as well, which reports the loss. In a
    /// withdrawn scope fsync(2) is refused. In a read-only scope `isDropped` reports the loss, also
    /// to close(2) of a file that was open for writing.
    @inline(never)
    func drop(_ request: consuming Request, _ size: Int, of node: UInt64, in scope: UInt32, _ verdict: Verdict) {
        countDenial(request.caller, in: scope)
        if verdict == .readOnly { droppedWrites.add(node, in: scope) { tree.nodes.find($0) != nil } }
        request.reply(written: size)
    }

    /// Whether data that a program wrote to the file was dropped by the narrowing.
    ///
    /// It was written before the grant became read-only or the file protected, or stored in mappings of the file later.
    @inline(__always)
    func isDropped(_ file: UnsafeMutablePointer<OpenFile>, in scope: UInt32) -> Bool {
        (refusesWriting(scope) || refusal(by: file.pointee.containment, .write) == .readOnly)
            && droppedWrites.has(file.pointee.node, in: scope)
    }
}

/// The files whose write-back was dropped because their grants were read-only, by scope.
///
/// Locking: its own, held for a moment.
final class DroppedWrites: Sendable {
    private let nodes = Lock(NodeValues<Void>())

    /// Adds a node whose write-back was dropped. `isKnown`: whether the kernel knows a node.
    func add(_ node: UInt64, in scope: UInt32, isKnown: (UInt64) -> Bool) {
        nodes.withLock { $0.update(node, in: scope, default: (), isKnown: isKnown) { _ in } }
    }
    func handOver(to state: inout HandoverWriter) {
        let all = nodes.withLock(\.all)
        state.put(UInt64(truncatingIfNeeded: all.count))
        for (scope, node, _) in all {
            state.put(scope)
            state.put(node)
        }
    }
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 12)) {
            let scope: UInt32 = try state.take()
            add(try state.take(), in: scope) { _ in true }
        }
    }
    func has(_ node: UInt64, in scope: UInt32) -> Bool { nodes.withLock { $0[node, in: scope] != nil } }
    /// Removes a file that may be changed again.
    func forget(_ node: UInt64, in scope: UInt32) { nodes.withLock { $0.remove(node, in: scope) } }
    /// Removes the files of a scope whose grant is read-write again, or that is gone.
    func forget(_ scope: UInt32) { nodes.withLock { $0.remove(scope) } }
}
