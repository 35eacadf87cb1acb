import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Access to the tree for the detection of files that were moved out of a granted directory.
extension NodeTree {
    /// An unpinned view of a node or an open file.
    ///
    /// Either may end at any moment. By then its descriptor number may be another file's.
    public struct UnpinnedSnapshot {
        public let node: UInt64
        public let scope: UInt32
        public let descriptor: Int32
    }

    /// No node has this index or a higher one.
    public var indexLimit: UInt32 { nodes.indexLimit }

    /// The directory at an index of the table, unpinned. With `files` also a regular file.
    ///
    /// It must have a descriptor and must not have escaped.
    public func directory(at index: UInt32, orFile files: Bool = false) -> UnpinnedSnapshot? {
        guard let (id, node) = nodes.element(at: index), node.pointee.type == S_IFDIR || (files && node.pointee.type == S_IFREG),
            node.pointee.containment.load(ordering: .relaxed) & Containment.escaped == 0
        else { return nil }
        let held = node.pointee.pinState.load(ordering: .relaxed) & Node.descriptorMask
        let scope = node.pointee.scope
        return held == 0 || nodes.find(id) == nil
            ? nil : UnpinnedSnapshot(node: id, scope: scope, descriptor: Int32(truncatingIfNeeded: held) - 1)
    }

    /// The granted directory's descriptor. nil once it is released.
    ///
    /// It stays open while an operation is inside the scope or the node is pinned.
    public func rootDescriptor(of scope: ScopeNodes) -> Int32? {
        scope.root.flatMap { descriptor(of: $0.id) }
    }

    /// A node's current descriptor, if any. Unpinned, so its number may become another file's.
    public func descriptor(of id: UInt64) -> Int32? {
        guard let node = nodes.find(id) else { return nil }
        let held = node.pointee.pinState.load(ordering: .acquiring) & Node.descriptorMask
        return held == 0 ? nil : Int32(truncatingIfNeeded: held) - 1
    }

    /// Runs `body` on a node's descriptor, which stays open meanwhile. Returns nil if it has none.
    ///
    /// Opens no descriptor, unlike `pin`. Locking: that of `withLive`.
    public func withHeldDescriptor<Result>(of id: UInt64, in scope: ScopeNodes, _ body: (Int32) -> Result) -> Result? {
        withLive(id, in: scope) { node in
            let held = node.pointee.pinState.wrappingAdd(Node.pin, ordering: .acquiringAndReleasing).newValue & Node.descriptorMask
            defer { unpin(id, node) }
            return held == 0 ? nil : body(Int32(truncatingIfNeeded: held) - 1)
        } ?? nil
    }

    /// Runs `body` on a node that is kept alive.
    ///
    /// Returns nil if the kernel has forgotten it or if it belongs to another scope.
    ///
    /// Locking: the shard's, for a moment before and after.
    public func withLive<Result>(_ id: UInt64, in scope: ScopeNodes, _ body: (UnsafeMutablePointer<Node>) -> Result) -> Result? {
        guard let node = count(id, in: scope), node.pointee.scope == scope.scope else { return nil }
        defer { forget(id, 1) }
        return body(node)
    }

    /// Does the same for the node with a key.
    @inline(__always)
    public func withLive(_ key: NodeKey, in scope: ScopeNodes, _ body: (UInt64, UnsafeMutablePointer<Node>) -> Void) {
        let found = scope.withShard(of: key) { index -> (id: UInt64, node: UnsafeMutablePointer<Node>)? in
            guard let id = index.find(key, in: nodes), let node = nodes.find(id) else { return nil }
            node.pointee.lookups.wrappingAdd(1, ordering: .relaxed)
            return (id, node)
        }
        guard let found else { return }
        body(found.id, found.node)
        forget(found.id, 1)
    }

    /// Makes the next operation on each node of a scope check its place.
    ///
    /// Does nothing in scopes where operations check it anyway, or never.
    ///
    /// Locking: the shard's, for some hundred nodes each time.
    public func doubt(_ scope: ScopeNodes) {
        if scope.isUnwatched.load(ordering: .relaxed), !scope.ruled.hasRules { return }
        if scope.document != nil { return }
        // In this order: see `settle`.
        scope.doubts.wrappingAdd(1, ordering: .sequentiallyConsistent)
        scope.forEach(in: nodes) { $0.pointee.markDoubted() }
    }

    /// Does the same for one node. Returns false in such a scope.
    public func doubt(_ node: UnsafeMutablePointer<Node>) -> Bool {
        node.pointee.withOwner { scope in
            if scope.isUnwatched.load(ordering: .relaxed), !scope.ruled.hasRules { return false }
            if scope.document != nil { return false }
            scope.doubts.wrappingAdd(1, ordering: .sequentiallyConsistent)
            node.pointee.markDoubted()
            return true
        }
    }

    /// The node at an index of the table, if its place is in doubt. It may end at any moment.
    public func doubted(at index: UInt32) -> (id: UInt64, scope: UInt32)? {
        guard let (id, node) = nodes.element(at: index),
            node.pointee.containment.load(ordering: .relaxed) & (Containment.escaped | Containment.isDoubted) == Containment.isDoubted
        else { return nil }
        let scope = node.pointee.scope
        return nodes.find(id) == nil ? nil : (id, scope)
    }

    /// Ends the doubt about a node that was found in its grant.
    ///
    /// - Parameter moment: The scope's `doubts` before the node's place was read. A later doubt
    ///   stays.
    public func settle(_ node: UnsafeMutablePointer<Node>, since moment: UInt64) {
        guard node.pointee.containment.load(ordering: .relaxed) & Containment.isDoubted != 0 else { return }
        node.pointee.withOwner { scope in
            if scope.hasUnwatched.load(ordering: .sequentiallyConsistent) { return }
            node.pointee.containment.bitwiseAnd(~Containment.isDoubted, ordering: .sequentiallyConsistent)
            // Doubts are counted first and marked afterwards, so one of the two remains.
            if scope.doubts.load(ordering: .sequentiallyConsistent) != moment { node.pointee.markDoubted() }
        }
    }

    /// Refuses a node from now on and removes it from lookups by key.
    ///
    /// A lookup that finds the file in the granted directory again makes another node.
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

    /// Whether an open directory (O_PATH) has an entry that leads to a file.
    ///
    /// May block on its filesystem.
    ///
    /// - Parameter isVisible: Whether an entry's name counts.
    public static func directory(
        _ descriptor: Int32, leadsTo key: NodeKey, by isVisible: (UnsafePointer<CChar>) -> Bool = { _ in true }
    ) -> Bool {
        let opened = clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY)
        if opened < 0 { return false }
        defer { _ = clinux_close(opened) }
        var (stream, found) = (DirectoryStream(), false)
        _ = stream.forEach(in: opened) { entry in
            var status = FileStatus()
            found =
                entry.inode == key.inode && clinux_statx(opened, entry.name, &status) == 0 && NodeKey(status) == key
                && isVisible(entry.name)
            return !found
        }
        return found
    }
}

extension Node {
    /// Begins to carry the protection of a file out, unless it is complete or another thread does. Returns whether it begins.
    public func claimProtection() -> Bool {
        var known = containment.load(ordering: .sequentiallyConsistent)
        while known & (Containment.protected | Containment.isBeingProtected) == Containment.protecting {
            let (isDone, now) = containment.compareExchange(
                expected: known, desired: known | Containment.isBeingProtected, ordering: .sequentiallyConsistent)
            if isDone { return true }
            known = now
        }
        return false
    }

    public func endProtection() { containment.bitwiseAnd(~Containment.isBeingProtected, ordering: .sequentiallyConsistent) }

    public var isBeingProtected: Bool { containment.load(ordering: .sequentiallyConsistent) & Containment.isBeingProtected != 0 }

    /// Refuses write-back as well, if changes are still refused. Returns whether they are.
    @discardableResult
    public func completeProtection() -> Bool {
        var known = containment.load(ordering: .sequentiallyConsistent)
        while known & Containment.protecting != 0 {
            let (isDone, now) = containment.compareExchange(
                expected: known, desired: known | Containment.protected, ordering: .sequentiallyConsistent)
            if isDone { return true }
            known = now
        }
        return false
    }

    /// See `Containment.isDoubted`.
    func markDoubted() {
        lookedAt.store(0, ordering: .relaxed)
        containment.bitwiseOr(Containment.isDoubted, ordering: .sequentiallyConsistent)
    }
}

extension OpenFiles {
    /// Sets refusing bits on the open files whose nodes `isMeant` selects. Returns these files.
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

    /// Clears bits of the open files whose nodes `isMeant` selects.
    ///
    /// Locking: the table's, one element at a time.
    public func permit(_ containment: UInt8, _ isMeant: (UInt64) -> Bool) {
        for index in 0..<table.indexLimit {
            table.visit(index) { _, file in
                if isMeant(file.pointee.node) { file.pointee.containment.bitwiseAnd(~containment, ordering: .sequentiallyConsistent) }
            }
        }
    }

    /// Copies a node's refusing bits to a newly opened file that is not published yet.
    @inline(__always)
    public func inherit(_ containment: UInt8, _ id: UInt64) {
        table.find(id)?.pointee.containment.bitwiseOr(containment & Containment.inherited, ordering: .relaxed)
    }

    /// Calls `body` with an unpinned view of each open file that is not refused.
    public func forEachUnpinned(_ body: (NodeTree.UnpinnedSnapshot) -> Void) {
        for index in 0..<table.indexLimit {
            var seen: NodeTree.UnpinnedSnapshot?
            table.visit(index) { _, file in
                if file.pointee.containment.load(ordering: .relaxed) & Containment.escaped != 0 { return }
                seen = NodeTree.UnpinnedSnapshot(node: file.pointee.node, scope: file.pointee.scope, descriptor: file.pointee.descriptor)
            }
            if let seen { body(seen) }
        }
    }

    /// The numbers of a node's open files.
    public func numbers(of node: UInt64) -> [UInt64] {
        var found: [UInt64] = []
        for index in 0..<table.indexLimit { table.visit(index) { id, file in if file.pointee.node == node { found.append(id) } } }
        return found
    }
}

extension OpenDirectories {
    /// Does the same as `OpenFiles.refuse`.
    public func refuse(_ containment: UInt8, _ isMeant: (UInt64) -> Bool) {
        for index in 0..<table.indexLimit {
            table.visit(index) { _, directory in
                guard isMeant(directory.pointee.node) else { return }
                directory.pointee.containment.bitwiseOr(containment, ordering: .sequentiallyConsistent)
            }
        }
    }

    /// Does the same as `OpenFiles.permit`.
    public func permit(_ containment: UInt8, _ isMeant: (UInt64) -> Bool) {
        for index in 0..<table.indexLimit {
            table.visit(index) { _, directory in
                guard isMeant(directory.pointee.node) else { return }
                directory.pointee.containment.bitwiseAnd(~containment, ordering: .sequentiallyConsistent)
            }
        }
    }

    /// Does the same as `OpenFiles.inherit`.
    public func inherit(_ containment: UInt8, _ id: UInt64) {
        table.find(id)?.pointee.containment.bitwiseOr(containment & Containment.inherited, ordering: .relaxed)
    }

    /// Does the same as `OpenFiles.forEachUnpinned`.
    public func forEachUnpinned(_ body: (NodeTree.UnpinnedSnapshot) -> Void) {
        for index in 0..<table.indexLimit {
            var seen: NodeTree.UnpinnedSnapshot?
            table.visit(index) { _, directory in
                if directory.pointee.containment.load(ordering: .relaxed) & Containment.escaped != 0 { return }
                seen = NodeTree.UnpinnedSnapshot(
                    node: directory.pointee.node, scope: directory.pointee.scope, descriptor: directory.pointee.descriptor)
            }
            if let seen { body(seen) }
        }
    }
}
