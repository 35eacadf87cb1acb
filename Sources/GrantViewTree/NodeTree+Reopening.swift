import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Reopens files whose descriptors were evicted, by handle, or by names from an open directory.
// Another file is ESTALE, and the kernel looks the name up again.
extension NodeTree {
    /// No path is deeper.
    private static let depthLimit = 8192

    /// Reopens the file of a node that the caller has pinned.
    ///
    /// Returns the descriptor, which the node owns, or a negative error number.
    func reopen(_ node: UnsafeMutablePointer<Node>) -> Int32 {
        // Pins before it checks. `release` uses the opposite order.
        atomicMemoryFence(ordering: .sequentiallyConsistent)
        guard !node.pointee.owner.isReleased.load(ordering: .relaxed) else { return -ESTALE }
        let opened = node.pointee.owner.opensByHandle ? openByHandle(node) : openByName(node)
        return opened < 0 ? opened : install(opened, in: node)
    }

    /// Makes `opened` the descriptor of a pinned node, and returns the node's descriptor.
    ///
    /// If the node has got one meanwhile, `opened` is closed.
    func install(_ opened: Int32, in node: UnsafeMutablePointer<Node>) -> Int32 {
        while true {
            let old = node.pointee.pinState.load(ordering: .acquiring)
            if old & Node.descriptorMask != 0 {
                // Another thread was faster.
                _ = clinux_close(opened)
                return Int32(truncatingIfNeeded: old & Node.descriptorMask) - 1
            }
            let new = old | UInt64(truncatingIfNeeded: UInt32(bitPattern: opened &+ 1))
            if node.pointee.pinState.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged {
                if budget.add(node.pointee.scope) { evict() }
                return opened
            }
        }
    }

    private func openByHandle(_ node: UnsafeMutablePointer<Node>) -> Int32 {
        guard let handle = node.pointee.handle.copy(), let base = node.pointee.owner.handleBase else { return -ESTALE }
        var copy = handle
        return verified(evictingIfNeeded { clinux_open_by_handle(base, &copy, clinux_O_PATH | O_NOFOLLOW) }, node)
    }

    /// Walks up to the nearest directory with an open descriptor, then down again.
    ///
    /// The granted directory always has one.
    private func openByName(_ node: UnsafeMutablePointer<Node>) -> Int32 {
        let scope = node.pointee.owner
        // Each counted and pinned.
        var above: [(id: UInt64, node: UnsafeMutablePointer<Node>)] = []
        defer {
            for (id, node) in above {
                unpin(id, node)
                forget(id, 1)
            }
        }
        var (current, directory): (UnsafeMutablePointer<Node>, Int32) = (node, -1)
        while directory < 0 {
            let id = current.pointee.parent.load(ordering: .relaxed)
            guard above.count < Self.depthLimit, let parent = count(id, in: scope) else { return -ESTALE }
            above.append((id, parent))
            let hold = parent.pointee.pinState.wrappingAdd(Node.pin, ordering: .acquiringAndReleasing).newValue
            directory = Int32(truncatingIfNeeded: hold & Node.descriptorMask) - 1
            current = parent
        }
        for level in above.indices.reversed() {
            let child = level == 0 ? node : above[level - 1].node
            let opened = open(child, in: directory, of: above[level].id)
            if opened < 0 || level == 0 { return opened }
            directory = install(opened, in: child)
        }
        return -ESTALE
    }

    private func open(_ child: UnsafeMutablePointer<Node>, in directory: Int32, of parent: UInt64) -> Int32 {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
            let name = buffer.baseAddress!
            let scope = child.pointee.owner
            guard scope.withShard(of: child.pointee.key, { _ in child.pointee.copyName(in: parent, to: name) }) else { return -ESTALE }
            return verified(
                evictingIfNeeded { clinux_open_beneath(directory, name, clinux_O_PATH | O_NOFOLLOW, 0, scope.crossesMounts) }, child)
        }
    }

    /// Returns `opened` if it is the node's file.
    ///
    /// Neither a handle nor a name is trusted alone. An inode number may have been reused on a
    /// filesystem without generations, and a name may lead to another file by now. The type is
    /// compared as well: a server can give files of two types one number, and a file opened as a
    /// regular one must be one.
    private func verified(_ opened: Int32, _ node: UnsafeMutablePointer<Node>) -> Int32 {
        if opened < 0 { return [-ENOENT, -ENOTDIR, -EXDEV].contains(opened) ? -ESTALE : opened }
        var status = FileStatus()
        guard clinux_statx(opened, nil, &status) == 0, NodeKey(status) == node.pointee.key, status.st.st_mode & S_IFMT == node.pointee.type
        else {
            _ = clinux_close(opened)
            return -ESTALE
        }
        return opened
    }
}
