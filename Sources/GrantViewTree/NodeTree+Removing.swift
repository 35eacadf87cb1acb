import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// A node whose name is about to change: counted and pinned until `unpin`.
public struct PinnedNode {
    public let id: UInt64
    public let node: UnsafeMutablePointer<Node>
    /// Whether the name is its only one.
    let isLast: Bool
}

// Names that change through the mount. A node that loses its last name keeps its descriptor:
// nothing else would find the file again, and a program may hold it.
extension NodeTree {
    /// Pins the node of the entry `name` of an open directory.
    ///
    /// Returns nil if the kernel does not know it, or if no descriptors are evicted anyway.
    ///
    /// Locking: the shard's.
    public func pinEntry(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) -> PinnedNode? {
        guard !scope.opensByHandle || isUnderPressure else { return nil }
        let opened = evictingIfNeeded { clinux_open_beneath(directory, name, clinux_O_PATH | O_NOFOLLOW, 0, scope.crossesMounts) }
        if opened < 0 { return nil }
        var status = FileStatus()
        guard clinux_statx(opened, nil, &status) == 0, case let key = NodeKey(status),
            let (id, node) = scope.withShard(
                of: key,
                { index -> (UInt64, UnsafeMutablePointer<Node>)? in
                    guard let id = index.find(key, in: nodes), let node = index.count(id, in: nodes) else { return nil }
                    return (id, node)
                })
        else {
            _ = clinux_close(opened)
            return nil
        }
        node.pointee.pinState.wrappingAdd(Node.pin, ordering: .acquiringAndReleasing)
        _ = install(opened, in: node)
        return PinnedNode(id: id, node: node, isLast: status.st.st_nlink <= 1 || node.pointee.type == S_IFDIR)
    }

    /// Pins the node of an open file that is about to lose a name.
    ///
    /// Used if the daemon may open by handle and nothing else keeps the file. It is unknown then
    /// which files programs have open. Uses statx(2) on the name alone.
    ///
    /// Locking: the shard's.
    public func pinOpenEntry(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) -> PinnedNode? {
        guard scope.opensByHandle else { return pinEntry(name, in: directory, of: scope) }
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.st.st_mode & S_IFMT == S_IFREG, case let key = NodeKey(status),
            let (id, node) = scope.withShard(
                of: key,
                { index -> (UInt64, UnsafeMutablePointer<Node>)? in
                    guard let id = index.find(key, in: nodes), let node = index.count(id, in: nodes) else { return nil }
                    return (id, node)
                })
        else { return nil }
        // While the name exists its handle leads to it.
        _ = pin(node)
        return PinnedNode(id: id, node: node, isLast: status.st.st_nlink <= 1)
    }

    /// Records that the name by which it was pinned is gone.
    ///
    /// Locking: the shard's.
    public func removed(_ held: PinnedNode, _ name: UnsafePointer<CChar>, from parent: UInt64) {
        let node = held.node
        if held.isLast { node.pointee.keepsDescriptor.store(true, ordering: .releasing) }
        free(node.pointee.owner.withShard(of: node.pointee.key) { _ in node.pointee.forgetPlace(parent, name) })
    }

    /// Marks a node without a name in this scope: only its descriptor leads to it.
    public func markNameless(_ held: PinnedNode) { held.node.pointee.markNameless() }

    /// Records its new name.
    ///
    /// Locking: the shard's.
    public func moved(_ held: PinnedNode, _ name: UnsafePointer<CChar>, to parent: UInt64) {
        let node = held.node
        var place = Place(parent: parent, name: node.pointee.owner.opensByHandle ? nil : name)
        node.pointee.owner.withShard(of: node.pointee.key) { _ in place.exchange(with: node) }
    }

    public func unpin(_ held: PinnedNode) {
        unpin(held.id, held.node)
        forget(held.id, 1)
    }
}
