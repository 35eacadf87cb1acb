import GrantCoordinator
import GrantFUSE
import GrantSystem
import GrantViewTree

// Grants that become read-only while files are open for writing, and read-write again. What is taken away goes the way of a revocation (`finish`).
extension ViewFS {
    /// Lets writes in again after a read-only grant was widened, unless it is to be read-only once more.
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

    /// Says that the grant is to be read-write again; `widen` carries it out.
    public func wantWriting(_ scope: Scope) { scope.wantsReadOnly.store(false, ordering: .releasing) }

    /// Whether the kernel is to ask before it lets anybody write to the file.
    ///
    /// With write-back it takes a write(2) into its cache by itself, but for this: once it has attributes anew it asks before the next one
    /// whether the file has capabilities, and takes them away if it has, which a read-only grant refuses (EROFS), and with that the write
    /// (fs/inode.c, file_remove_privs; security/commoncap.c, cap_inode_need_killpriv). So that is what it is told of a file that somebody has
    /// open for writing from before the grant became read-only. Reading goes on as it did.
    func mustAskToWrite(_ node: NodePointer) -> Bool {
        !kernelOpens && policy.writeBack && node.pointee.writers.load(ordering: .relaxed) > 0 && refusesWriting(node.pointee.scope)
    }

    @inline(__always)
    private func refusesWriting(_ scope: UInt32) -> Bool { coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.write) }

    /// Answers what the kernel's cache brings of its own accord and a gate has refused: it is dropped, and said to be written. An error would
    /// make close(2) fail, and syncfs(2) for holders of other grants, as the kernel notes it for the whole filesystem
    /// (include/linux/pagemap.h, mapping_set_error). Whoever waits for what is written asks by fsync(2) as well, which says so: in a withdrawn
    /// scope it is refused, in one that is read-only `isDropped` knows, for close(2) of who could write as well.
    @inline(never)
    func drop(_ request: consuming Request, _ size: Int, of node: UInt64, in scope: UInt32, _ verdict: Verdict) {
        countDenial(request.caller, in: scope)
        if verdict == .readOnly { droppedWrites.add(node, in: scope) }
        request.reply(written: size)
    }

    /// Whether something that was written to the file before its grant became read-only, or stored in mappings of it later, never reached it.
    @inline(__always)
    func isDropped(_ node: UInt64, in scope: UInt32) -> Bool { refusesWriting(scope) && droppedWrites.has(node, in: scope) }
}

/// Files of which something was dropped that the kernel's cache brought when their grants were read-only, by scope.
///
/// Locking: its own, held for a moment.
final class DroppedWrites: Sendable {
    private let nodes = Lock<[UInt32: Set<UInt64>]>([:])

    func add(_ node: UInt64, in scope: UInt32) { nodes.withLock { _ = $0[scope, default: []].insert(node) } }
    func handOver(to state: inout HandoverWriter) {
        let all = nodes.withLock { nodes in nodes.flatMap { scope, nodes in nodes.map { (scope, $0) } } }
        state.put(UInt64(truncatingIfNeeded: all.count))
        for (scope, node) in all {
            state.put(scope)
            state.put(node)
        }
    }
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 12)) {
            let scope: UInt32 = try state.take()
            add(try state.take(), in: scope)
        }
    }
    func has(_ node: UInt64, in scope: UInt32) -> Bool { nodes.withLock { $0[scope]?.contains(node) ?? false } }
    /// The grant is read-write again, or its scope is gone.
    func forget(_ scope: UInt32) { nodes.withLock { _ = $0.removeValue(forKey: scope) } }
}
