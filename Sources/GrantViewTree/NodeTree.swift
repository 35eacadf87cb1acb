import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// All nodes of a mount by id, with their lookup counts and descriptors.
public final class NodeTree: @unchecked Sendable {
    // Sendable: the table is. `scopes` has a lock.
    public let nodes: SlotTable<Node>
    /// The published node ids, directories marked, for the process that cleans up.
    ///
    /// That process invalidates them after this one's death. It is nil if there is no memory for
    /// it.
    public let shared: SharedChunks?
    public let devices: InodeNumbering
    let budget: DescriptorBudget
    let scopes = Lock<[UInt32: ScopeNodes]>([:])

    /// The share of descriptors that programs hold.
    ///
    /// Programs hold them by open files, open directories, and descriptions that carry locks.
    public let shares: FairQuota

    /// Closes the cached opens of a node that ends.
    ///
    /// They are numbers of `OpenFiles`, or of `OpenDirectories` for a directory. Set before the
    /// first request.
    public nonisolated(unsafe) var close: (_ reader: UInt64, _ writer: UInt64, _ isDirectory: Bool) -> Void = { _, _, _ in }

    public convenience init(plan: DescriptorPlan, page: UnsafeMutablePointer<clinux_supervised>? = nil) {
        self.init(descriptorLimit: plan.nodes, shared: plan.shared, held: plan.held, page: page)
    }

    /// Makes an empty tree.
    ///
    /// - Parameters:
    ///   - descriptorLimit: How many O_PATH descriptors nodes may hold.
    ///   - shared: How many nodes and programs may hold together.
    ///   - held: How many of those programs may hold.
    ///   - page: Publishes the nodes for the next daemon (`Supervisor`).
    public init(descriptorLimit: Int, shared: Int = 1 << 40, held: Int = 1 << 40, page: UnsafeMutablePointer<clinux_supervised>? = nil) {
        devices = InodeNumbering(page: page)
        self.shared = try? SharedChunks(withElements: page != nil)
        nodes = SlotTable(shared: self.shared)
        shares = FairQuota(limit: held)
        budget = DescriptorBudget(limit: descriptorLimit, shared: shared, shares: shares)
    }

    public var descriptorsInUse: Int { budget.inUse }

    /// Returns the memory of forgotten nodes to the kernel. Returns the bytes.
    ///
    /// Call it regularly.
    public func trim() -> Int { nodes.trim() }

    // MARK: scopes

    /// Adds a scope.
    ///
    /// - Parameters:
    ///   - handleBase: nil if the daemon may not open by handle.
    ///   - usesCallerGroups: See `ScopeNodes`.
    public func addScope(_ scope: UInt32, handleBase: HandleBase?, crossesMounts: Bool, usesCallerGroups: Bool = false) -> ScopeNodes {
        let made = ScopeNodes(scope: scope, handleBase: handleBase, crossesMounts: crossesMounts, usesCallerGroups: usesCallerGroups)
        scopes.withLock { $0[scope] = made }
        budget.addRoots(1)
        return made
    }

    public func scope(_ scope: UInt32) -> ScopeNodes? { scopes.withLock { $0[scope] } }

    /// Removes a scope that no operation is inside and whose nodes the kernel has forgotten.
    public func removeScope(_ scope: UInt32) {
        if scopes.withLock({ $0.removeValue(forKey: scope) }) != nil { budget.addRoots(-1) }
    }

    /// Whether the scope and the user may have one more open file or directory.
    ///
    /// See `FairQuota`. A method here, so that callers retain no reference.
    public func hasRoom(scope: UInt32, user: UInt32) -> Bool { shares.hasRoom(scope: scope, user: user) }

    // MARK: nodes

    /// Interns the file behind `descriptor` (O_PATH), and counts one lookup.
    ///
    /// The file was found in the directory `parent` (a node id) as `name`. Takes ownership of the
    /// descriptor: it becomes the node's, or is closed if the node has one. Returns nil if there is
    /// no memory.
    ///
    /// Locking: the shard's.
    public func intern(
        _ descriptor: consuming FileDescriptor, _ status: borrowing FileStatus, in scope: ScopeNodes, found parent: UInt64,
        as name: UnsafePointer<CChar>?
    ) -> UInt64? {
        let key = NodeKey(status)
        let type = status.st.st_mode & S_IFMT
        let number = descriptor.release()
        var place = Place(parent: parent, name: scope.opensByHandle ? nil : name)
        // Made before the lock is taken, and discarded if the node exists: the insertion itself
        // makes no system call.
        let (id, isNew) = scope.withShard(of: key) { index -> (UInt64?, Bool) in
            if let known = index.find(key, in: nodes), let node = nodes.find(known) {
                node.pointee.lookups.wrappingAdd(1, ordering: .relaxed)
                place.exchange(with: node)
                return (known, false)
            }
            let node = Node(key: key, owner: scope, type: type, descriptor: number)
            guard let id = nodes.insert(node, isMarked: type == S_IFDIR) else { return (nil, false) }
            index.insert(id, key, in: nodes)
            if let node = nodes.find(id) { place.exchange(with: node) }
            return (id, true)
        }
        if isNew {
            if budget.add(scope.scope) {
                evict()
                // Descriptors that cannot be evicted are for scopes that hold few of them.
                if budget.left <= 0 || budget.isOverdrawn(scope.scope), parent != 0, budget.inUse > budget.limit, let id {
                    forget(id, 1)
                    return nil
                }
            }
        } else {
            _ = clinux_close(number)
        }
        return id
    }

    /// Interns a file that the kernel already knows, and counts one lookup.
    ///
    /// The file was found in the directory `parent` as `name`. Returns nil if the kernel does not
    /// know it. Needs no descriptor.
    ///
    /// Locking: the shard's.
    public func internKnown(
        _ status: borrowing FileStatus, in scope: ScopeNodes, found parent: UInt64, as name: UnsafePointer<CChar>
    ) -> UInt64? {
        let key = NodeKey(status)
        var place = Place(parent: parent, name: scope.opensByHandle ? nil : name)
        return scope.withShard(of: key) { index -> UInt64? in
            guard let known = index.find(key, in: nodes), let node = nodes.find(known) else { return nil }
            node.pointee.lookups.wrappingAdd(1, ordering: .relaxed)
            place.exchange(with: node)
            return known
        }
    }

    /// Makes the node of the granted directory, counted once for the scope itself.
    ///
    /// See `intern`.
    public func internRoot(_ descriptor: consuming FileDescriptor, _ status: borrowing FileStatus, of scope: ScopeNodes) -> UInt64? {
        guard let id = intern(descriptor, status, in: scope, found: 0, as: nil) else { return nil }
        scope.root = (id, NodeKey(status))
        return id
    }

    /// Counts one more lookup of a scope's root, and returns its id.
    ///
    /// Returns nil if the scope has ended.
    ///
    /// Locking: the shard's.
    public func countRoot(of scope: ScopeNodes) -> UInt64? {
        guard let root = scope.root else { return nil }
        return scope.withShard(of: root.key) { $0.count(root.id, in: nodes) } == nil ? nil : root.id
    }

    /// Makes or counts the node of a document's file, and makes the scope show it.
    ///
    /// See `intern`.
    public func showDocument(_ descriptor: consuming FileDescriptor, _ status: borrowing FileStatus, of scope: ScopeNodes) -> UInt64? {
        guard let document = scope.document, let id = intern(descriptor, status, in: scope, found: 0, as: nil), let node = nodes.find(id)
        else {
            return nil
        }
        node.pointee.markNameless()
        if let before = document.show(id, copy status) { forget(before, 1) }
        return id
    }

    /// Counts one more lookup of the node that such a scope shows. Returns nil if there is none.
    public func countDocument(of scope: ScopeNodes) -> (id: UInt64, status: FileStatus)? {
        guard let shown = scope.document?.node else { return nil }
        return scope.withShard(of: NodeKey(shown.status)) { $0.count(shown.id, in: nodes) } == nil ? nil : shown
    }

    /// Whether a program has the file open.
    ///
    /// If the kernel opens files by itself, whether one may have it open.
    public func isOpen(_ key: NodeKey, in scope: ScopeNodes) -> Bool {
        scope.withShard(of: key) { index in
            guard let id = index.find(key, in: nodes), let node = nodes.find(id) else { return false }
            return node.pointee.openers.load(ordering: .relaxed) > 0 || node.pointee.hasCachedOpens
                || node.pointee.mayHavePages.load(ordering: .relaxed)
        }
    }

    /// Records that one of the file's several names is about to be removed.
    ///
    /// Does nothing if the kernel does not know the file.
    ///
    /// Locking: the shard's.
    public func recordUnlink(of key: NodeKey, in scope: ScopeNodes, at time: Int64) {
        scope.withShard(of: key) { index in
            guard let id = index.find(key, in: nodes), let node = nodes.find(id) else { return }
            node.pointee.unlinked.store(time, ordering: .relaxed)
        }
    }

    /// Drops `count` lookups. The last one ends the node, at once or with its last pin.
    ///
    /// Locking: the shard's.
    public func forget(_ id: UInt64, _ count: UInt64) {
        guard let node = nodes.find(id) else { return }
        let gone = node.pointee.withOwner { owner in
            owner.withShard(of: node.pointee.key) { index -> Bool in
                let left = node.pointee.lookups.load(ordering: .relaxed)
                let rest = left > count ? left - count : 0
                node.pointee.lookups.store(rest, ordering: .relaxed)
                if rest == 0 { index.remove(id, node.pointee.key, in: nodes) }
                return rest == 0
            }
        }
        guard gone else { return }
        let old = node.pointee.pinState.bitwiseOr(Node.retiredBit, ordering: .acquiringAndReleasing).oldValue
        if old & Node.retiredBit == 0, old >> 32 == 0 { finish(id, node) }
    }

    // MARK: descriptors

    /// Pins the node's O_PATH descriptor until `unpin`.
    ///
    /// Returns it, or a negative error number.
    @inline(__always)
    public func pin(_ node: UnsafeMutablePointer<Node>) -> Int32 {
        let held = node.pointee.pinState.wrappingAdd(Node.pin, ordering: .acquiringAndReleasing).newValue & Node.descriptorMask
        return held != 0 ? Int32(truncatingIfNeeded: held) - 1 : reopen(node)
    }

    @inline(__always)
    public func unpin(_ id: UInt64, _ node: UnsafeMutablePointer<Node>) {
        let rest = node.pointee.pinState.wrappingSubtract(Node.pin, ordering: .acquiringAndReleasing).newValue
        if rest >> 32 == Node.retiredBit >> 32 { finish(id, node) }
    }

    private func finish(_ id: UInt64, _ node: UnsafeMutablePointer<Node>) {
        let held = node.pointee.pinState.load(ordering: .acquiring)
        let scope = node.pointee.scope
        let (kept, isDirectory) = (node.pointee.cachedOpens, node.pointee.type == S_IFDIR)
        nodes.remove(id)
        if kept.reader != 0 || kept.writer != 0 { close(kept.reader, kept.writer, isDirectory) }
        if held & Node.descriptorMask != 0 { close(held, of: scope) }
    }

    /// Closes the descriptor of an unpinned node.
    private func closeIfUnpinned(_ node: UnsafeMutablePointer<Node>) {
        let old = node.pointee.pinState.load(ordering: .acquiring)
        guard old & Node.descriptorMask != 0, old >> 32 == 0,
            node.pointee.pinState.compareExchange(expected: old, desired: 0, ordering: .acquiringAndReleasing).exchanged
        else { return }
        close(old, of: node.pointee.scope)
    }

    /// Closes the descriptor in a node's former `pinState`.
    func close(_ hold: UInt64, of scope: UInt32) {
        _ = clinux_close(Int32(truncatingIfNeeded: hold & Node.descriptorMask) - 1)
        budget.remove(scope)
    }

    /// Releases every descriptor of a shut scope permanently.
    ///
    /// No operation is inside the scope. Its filesystem can then be unmounted. False while code
    /// outside of operations (a query of the granted directory's path) has a node pinned. Then call
    /// it again.
    public func release(_ scope: ScopeNodes) -> Bool {
        scope.isReleased.store(true, ordering: .relaxed)
        atomicMemoryFence(ordering: .sequentiallyConsistent)
        var isEmpty = true
        for id in scope.ids {
            guard let node = count(id, in: scope) else { continue }
            closeIfUnpinned(node)
            // A pin without a descriptor may be about to open one.
            if node.pointee.pinState.load(ordering: .acquiring) & ~Node.retiredBit != 0 { isEmpty = false }
            forget(id, 1)
        }
        if isEmpty { scope.closeBase() }
        return isEmpty
    }
}
