import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Lookups from outside of operations: whether the kernel knows a given file.
extension NodeTree {
    /// The node of a file in a scope, if the kernel knows it.
    ///
    /// Locking: the shard's.
    public func find(_ key: NodeKey, in scope: ScopeNodes) -> UInt64? { scope.withShard(of: key) { $0.find(key, in: nodes) } }

    /// Calls `body` with an O_PATH descriptor of the file behind a handle.
    ///
    /// The handle is of the scope's filesystem. Returns nil if the file is gone or may not be
    /// opened by handle.
    public func withFile<Result>(_ handle: RawHandle, in scope: ScopeNodes, _ body: (Int32) -> Result) -> Result? {
        var result: Result?
        // A pinned node keeps the scope's descriptors open.
        withRoot(of: scope) { root in
            // Pins before it checks, as `reopen` does.
            atomicMemoryFence(ordering: .sequentiallyConsistent)
            guard root >= 0, !scope.isReleased.load(ordering: .relaxed), let base = scope.handleBase else { return }
            var copy = handle
            let opened = clinux_open_by_handle(base, &copy, clinux_O_PATH | O_NOFOLLOW)
            guard opened >= 0 else { return }
            result = body(opened)
            _ = clinux_close(opened)
        }
        return result
    }

    /// The identity of an entry of a directory.
    ///
    /// Returns nil if there is none, or if the kernel has forgotten the directory.
    public func key(of name: UnsafePointer<CChar>, in directory: WatchedDirectories.Place, _ scope: ScopeNodes) -> NodeKey? {
        var result: NodeKey?
        withNode(directory.node, directory.identity, in: scope) { node in
            let descriptor = pin(node)
            var status = FileStatus()
            if descriptor >= 0, clinux_statx(descriptor, name, &status) == 0 { result = NodeKey(status) }
            unpin(directory.node, node)
        }
        return result
    }

    /// The current path of a node's file, as the kernel writes it.
    ///
    /// Returns nil if the node has no descriptor at the moment. Makes no call to a filesystem.
    ///
    /// Locking: the shard's.
    public func knownPath(of id: UInt64, in scope: ScopeNodes) -> [UInt8]? {
        guard let node = count(id, in: scope) else { return nil }
        defer { forget(id, 1) }
        let held = node.pointee.pinState.wrappingAdd(Node.pin, ordering: .acquiringAndReleasing).newValue & Node.descriptorMask
        defer { unpin(id, node) }
        guard held != 0 else { return nil }
        var buffer = [UInt8](repeating: 0, count: 16_384)
        let count = buffer.withUnsafeMutableBytes {
            clinux_descriptor_path(Int32(truncatingIfNeeded: held) - 1, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
        }
        return count > 0 ? Array(buffer.prefix(count)) : nil
    }

    /// Whether the kernel counts lookups of a scope's root, besides the scope's own.
    public func isCounted(_ root: UInt64) -> Bool { (nodes.find(root)?.pointee.lookups.load(ordering: .relaxed) ?? 0) > 1 }

    /// Whether a node's file is open. Returns false if the kernel has forgotten it.
    public func isOpen(_ node: UInt64, _ key: NodeKey, in scope: ScopeNodes) -> Bool {
        var result = false
        withNode(node, key, in: scope) { result = $0.pointee.openers.load(ordering: .relaxed) > 0 }
        return result
    }
}
