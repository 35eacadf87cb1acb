import GrantCoordinator
import GrantFUSE
import GrantSystem
import GrantViewTree

// Narrows grants to read-only while files are open for writing, and widens them again. A narrowing goes the way of a revocation
// (`finish`).
extension ViewFS {
    /// Allows writes again after a read-only grant was widened, unless it has become read-only once more.
    ///
    /// Locking: the scope's `closing` lock: a narrowing under way is carried through first.
    public func widen(_ scope: Scope) {
        scope.closing.withLock { _ in
            if scope.wantsReadOnly.load(ordering: .acquiring) { return }
            droppedWrites.forget(scope.id.rawValue)
            records?.update(isReadOnly: false, of: scope.id)
            coordinator.widen(scope.id)
        }
    }

    /// Records that the grant is to be read-write again; `widen` carries it out.
    public func wantWriting(_ scope: Scope) { scope.wantsReadOnly.store(false, ordering: .releasing) }

    /// Whether the kernel must ask before it lets a program write to the file.
    ///
    /// With write-back it takes write(2) into its cache by itself, with one exception: after it got new attributes it asks before
    /// the next write whether the file has capabilities, and removes them if so. A read-only grant refuses that (EROFS), and with
    /// it the write (fs/inode.c, file_remove_privs; security/commoncap.c, cap_inode_need_killpriv). So the daemon reports
    /// capabilities for a file that has been open for writing since before its grant became read-only. Reads are not affected.
    func mustAskToWrite(_ node: NodePointer) -> Bool {
        !kernelOpens && policy.writeBack && node.pointee.writers.load(ordering: .relaxed) > 0 && refusesWriting(node.pointee.scope)
    }

    @inline(__always)
    private func refusesWriting(_ scope: UInt32) -> Bool { coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.write) }

    /// Drops write-back that a gate has refused, and reports it as written. An error would make close(2) fail, and syncfs(2) for
    /// holders of other grants, as the kernel records it for the whole filesystem (include/linux/pagemap.h, mapping_set_error). A
    /// program that depends on its data calls fsync(2) as well, which reports the loss: in a withdrawn scope it is refused; in a
    /// read-only one `isDropped` knows, also for close(2) of a file that was open for writing.
    @inline(never)
    func drop(_ request: consuming Request, _ size: Int, of node: UInt64, in scope: UInt32, _ verdict: Verdict) {
        countDenial(request.caller, in: scope)
        if verdict == .readOnly { droppedWrites.add(node, in: scope) { tree.nodes.find($0) != nil } }
        request.reply(written: size)
    }

    /// Whether data that was written to the file before its grant became read-only, or stored in mappings of it later, never
    /// reached it.
    @inline(__always)
    func isDropped(_ node: UInt64, in scope: UInt32) -> Bool { refusesWriting(scope) && droppedWrites.has(node, in: scope) }
}

/// The files whose write-back was dropped because their grants were read-only, by scope.
///
/// Locking: its own, held for a moment.
final class DroppedWrites: Sendable {
    private let nodes = Lock(NodeValues<Void>())

    /// `isKnown`: whether the kernel knows a node.
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
    /// Removes the files of a scope whose grant is read-write again, or that is gone.
    func forget(_ scope: UInt32) { nodes.withLock { $0.remove(scope) } }
}
