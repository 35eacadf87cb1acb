import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// What somebody who looks for files that were moved out of a granted directory needs of the tree.
extension NodeTree {
    /// What is seen of a node or an open file in passing, which may end at any moment: its descriptor's number may be another file's by now.
    public struct UnpinnedSnapshot {
        public let node: UInt64
        public let scope: UInt32
        public let descriptor: Int32
    }

    /// No node has this index or a higher one.
    public var indexLimit: UInt32 { nodes.indexLimit }

    /// The directory, or with `files` the regular file, at an index of the table that has a descriptor and has not left, in passing.
    public func directory(at index: UInt32, orFile files: Bool = false) -> UnpinnedSnapshot? {
        guard let (id, node) = nodes.element(at: index), node.pointee.type == S_IFDIR || (files && node.pointee.type == S_IFREG),
            node.pointee.containment.load(ordering: .relaxed) & Containment.escaped == 0
        else { return nil }
        let held = node.pointee.pinState.load(ordering: .relaxed) & Node.descriptorMask
        let scope = node.pointee.scope
        return held == 0 || nodes.find(id) == nil
            ? nil : UnpinnedSnapshot(node: id, scope: scope, descriptor: Int32(truncatingIfNeeded: held) - 1)
    }

    /// The granted directory's descriptor; nil once it is let go. It stays open while an operation is in the scope, or while its node is pinned.
    public func rootDescriptor(of scope: ScopeNodes) -> Int32? {
        scope.root.flatMap { descriptor(of: $0.id) }
    }

    /// A node's descriptor, if it has one just now; its number may be another file's by then.
    public func descriptor(of id: UInt64) -> Int32? {
        guard let node = nodes.find(id) else { return nil }
        let held = node.pointee.pinState.load(ordering: .acquiring) & Node.descriptorMask
        return held == 0 ? nil : Int32(truncatingIfNeeded: held) - 1
    }

    /// Runs `body` on a node that cannot end meanwhile; nil when the kernel has forgotten it or it is not the scope's.
    ///
    /// Locking: the shard's, for a moment before and after.
    public func withLive<Result>(_ id: UInt64, in scope: ScopeNodes, _ body: (UnsafeMutablePointer<Node>) -> Result) -> Result? {
        guard let node = count(id, in: scope), node.pointee.scope == scope.scope else { return nil }
        defer { forget(id, 1) }
        return body(node)
    }

    /// Refuses a node from now on, and has its file found no more: who finds it again in the granted directory gets another node.
    ///
    /// Locking: the shard's.
    public func depart(_ id: UInt64, _ node: UnsafeMutablePointer<Node>) {
        node.pointee.withOwner { owner in
            owner.withShard(of: node.pointee.key) { index in
                node.pointee.containment.bitwiseOr(Containment.escaping, ordering: .sequentiallyConsistent)
                index.depart(id, node.pointee.key, in: nodes)
            }
        }
    }

    /// Whether a directory that is open (O_PATH) has an entry that leads to a file. May wait for its filesystem.
    public static func directory(_ descriptor: Int32, leadsTo key: NodeKey) -> Bool {
        let opened = clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY)
        if opened < 0 { return false }
        defer { _ = clinux_close(opened) }
        var (stream, found) = (DirectoryStream(), false)
        _ = stream.forEach(in: opened) { entry in
            var status = FileStatus()
            found = entry.inode == key.inode && clinux_statx(opened, entry.name, &status) == 0 && NodeKey(status) == key
            return !found
        }
        return found
    }
}

extension OpenFiles {
    /// What refuses from now on, for the open files of which `isMeant` says so of their nodes. Returns them.
    ///
    /// Locking: the table's, one element at a time.
    @discardableResult
    public func refuse(_ containment: UInt8, _ isMeant: (UInt64) -> Bool) -> [UInt64] {
        var refused: [UInt64] = []
        for index in 0..<table.indexLimit {
            table.visit(index) { id, file in
                guard isMeant(file.pointee.node) else { return }
                file.pointee.containment.bitwiseOr(containment, ordering: .sequentiallyConsistent)
                refused.append(id)
            }
        }
        return refused
    }

    /// Of a file that was just opened, and that nobody else knows yet.
    @inline(__always)
    public func inherit(_ containment: UInt8, _ id: UInt64) {
        table.find(id)?.pointee.containment.bitwiseOr(containment & Containment.escaped, ordering: .relaxed)
    }

    /// All that are open and not refused, in passing.
    public func forEachUnpinned(_ body: (NodeTree.UnpinnedSnapshot) -> Void) {
        for index in 0..<table.indexLimit {
            var seen: NodeTree.UnpinnedSnapshot?
            table.visit(index) { _, file in
                if file.pointee.containment.load(ordering: .relaxed) != 0 { return }
                seen = NodeTree.UnpinnedSnapshot(node: file.pointee.node, scope: file.pointee.scope, descriptor: file.pointee.descriptor)
            }
            if let seen { body(seen) }
        }
    }

    /// The numbers of the open files of a node.
    public func numbers(of node: UInt64) -> [UInt64] {
        var found: [UInt64] = []
        for index in 0..<table.indexLimit { table.visit(index) { id, file in if file.pointee.node == node { found.append(id) } } }
        return found
    }
}

extension OpenDirectories {
    /// As `OpenFiles.refuse`.
    public func refuse(_ containment: UInt8, _ isMeant: (UInt64) -> Bool) {
        for index in 0..<table.indexLimit {
            table.visit(index) { _, directory in
                guard isMeant(directory.pointee.node) else { return }
                directory.pointee.containment.bitwiseOr(containment, ordering: .sequentiallyConsistent)
            }
        }
    }

    /// As `OpenFiles.inherit`.
    public func inherit(_ containment: UInt8, _ id: UInt64) {
        table.find(id)?.pointee.containment.bitwiseOr(containment & Containment.escaped, ordering: .relaxed)
    }

    /// As `OpenFiles.forEachUnpinned`.
    public func forEachUnpinned(_ body: (NodeTree.UnpinnedSnapshot) -> Void) {
        for index in 0..<table.indexLimit {
            var seen: NodeTree.UnpinnedSnapshot?
            table.visit(index) { _, directory in
                if directory.pointee.containment.load(ordering: .relaxed) != 0 { return }
                seen = NodeTree.UnpinnedSnapshot(
                    node: directory.pointee.node, scope: directory.pointee.scope, descriptor: directory.pointee.descriptor)
            }
            if let seen { body(seen) }
        }
    }
}
