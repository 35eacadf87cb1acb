import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// All nodes of a mount, by id; their counts and their descriptors.
public final class NodeTree: @unchecked Sendable {
    // Safe to share: the table is; the scopes' array is written under `scopeLock` and its elements never change once set.
    public let nodes: SlotTable<Node>
    /// The nodes' ids, those of directories marked, for who has to see to them when this process has died; nil where there is no memory for it.
    public let shared: SharedChunks?
    public let devices: InodeNumbering
    let budget: DescriptorBudget
    let scopes = Lock<[UInt32: ScopeNodes]>([:])

    /// What programs hold of the descriptors: files and directories that are open, and what carries their locks.
    public let shares: FairQuota

    /// Closes what was kept open of a node that ends, numbers of `OpenFiles`, or of `OpenDirectories` when it is one. Set before the first request.
    public nonisolated(unsafe) var close: (_ reader: UInt64, _ writer: UInt64, _ isDirectory: Bool) -> Void = { _, _, _ in }

    public convenience init(plan: DescriptorPlan, page: UnsafeMutablePointer<clinux_supervised>? = nil) {
        self.init(descriptorLimit: plan.nodes, shared: plan.shared, held: plan.held, page: page)
    }

    /// `descriptorLimit`: how many O_PATH descriptors nodes may hold together. `shared`: how many they and what programs hold may be together. `held`: how
    /// many of those programs may hold. `page`: the nodes are to be had by the next daemon when this one has died
    /// (`Supervisor`).
    public init(descriptorLimit: Int, shared: Int = 1 << 40, held: Int = 1 << 40, page: UnsafeMutablePointer<clinux_supervised>? = nil) {
        devices = InodeNumbering(page: page)
        self.shared = try? SharedChunks(withElements: page != nil)
        nodes = SlotTable(shared: self.shared)
        shares = FairQuota(limit: held)
        budget = DescriptorBudget(limit: descriptorLimit, shared: shared, shares: shares)
    }

    public var descriptorsInUse: Int { budget.inUse }

    /// Gives back memory of what the kernel has forgotten. To be called now and then; returns how many bytes that were.
    public func trim() -> Int { nodes.trim() }

    // MARK: scopes

    /// Makes room for a scope's nodes. `handleBase`: nil where the daemon may not open by handle.
    /// `usesCallerGroups`: see there.
    public func addScope(_ scope: UInt32, handleBase: HandleBase?, crossesMounts: Bool, usesCallerGroups: Bool = false) -> ScopeNodes {
        let made = ScopeNodes(scope: scope, handleBase: handleBase, crossesMounts: crossesMounts, usesCallerGroups: usesCallerGroups)
        scopes.withLock { $0[scope] = made }
        budget.addRoots(1)
        return made
    }

    public func scope(_ scope: UInt32) -> ScopeNodes? { scopes.withLock { $0[scope] } }

    /// Forgets a scope in which nobody is inside and of which the kernel knows no node.
    public func removeScope(_ scope: UInt32) {
        if scopes.withLock({ $0.removeValue(forKey: scope) }) != nil { budget.addRoots(-1) }
    }

    /// Whether the scope and the user may have one more open file or directory, see `FairQuota`. Asked here, no reference is counted for it.
    public func hasRoom(scope: UInt32, user: UInt32) -> Bool { shares.hasRoom(scope: scope, user: user) }

    // MARK: nodes

    /// The node for the file behind `descriptor` (O_PATH), which was found in the directory `parent` (a node id) as `name`, counted once
    /// more. Takes the descriptor over: it becomes the node's, or is closed when the node has one. nil when memory is out.
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
        // Made before the lock is taken and thrown away if the node exists: inserting costs no system call.
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
                // What nobody can be made to lend is for those who have few of them.
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

    /// The node of a file that the kernel knows already, which was found in the directory `parent` as `name`, counted once more; nil when it
    /// does not know the file. As `intern`, without a descriptor.
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

    /// Makes the node of the granted directory, counted once for the scope itself. As `intern`.
    public func internRoot(_ descriptor: consuming FileDescriptor, _ status: borrowing FileStatus, of scope: ScopeNodes) -> UInt64? {
        guard let id = intern(descriptor, status, in: scope, found: 0, as: nil) else { return nil }
        scope.root = (id, NodeKey(status))
        return id
    }

    /// Counts one more lookup of a scope's root, and gives its id; nil when the scope has ended.
    ///
    /// Locking: the shard's.
    public func countRoot(of scope: ScopeNodes) -> UInt64? {
        guard let root = scope.root else { return nil }
        return scope.withShard(of: root.key) { $0.count(root.id, in: nodes) } == nil ? nil : root.id
    }

    /// Makes (or counts) the node of the file of a document's scope, which shows it from then on. As `intern`.
    public func showDocument(_ descriptor: consuming FileDescriptor, _ status: borrowing FileStatus, of scope: ScopeNodes) -> UInt64? {
        guard let document = scope.document, let id = intern(descriptor, status, in: scope, found: 0, as: nil), let node = nodes.find(id)
        else {
            return nil
        }
        node.pointee.markNameless()
        if let before = document.show(id, copy status) { forget(before, 1) }
        return id
    }

    /// Counts one more lookup of the node that such a scope shows; nil when there is none any more.
    public func countDocument(of scope: ScopeNodes) -> (id: UInt64, status: FileStatus)? {
        guard let shown = scope.document?.node else { return nil }
        return scope.withShard(of: NodeKey(shown.status)) { $0.count(shown.id, in: nodes) } == nil ? nil : shown
    }

    /// Whether a program has the file open, or where the kernel opens by itself may have.
    public func isOpen(_ key: NodeKey, in scope: ScopeNodes) -> Bool {
        scope.withShard(of: key) { index in
            guard let id = index.find(key, in: nodes), let node = nodes.find(id) else { return false }
            return node.pointee.openers.load(ordering: .relaxed) > 0 || node.pointee.hasCachedOpens
                || node.pointee.mayHavePages.load(ordering: .relaxed)
        }
    }

    /// Notes that one of several names of the file with `key` is about to be removed, if the kernel knows the file.
    ///
    /// Locking: the shard's.
    public func recordUnlink(of key: NodeKey, in scope: ScopeNodes, at time: Int64) {
        scope.withShard(of: key) { index in
            guard let id = index.find(key, in: nodes), let node = nodes.find(id) else { return }
            node.pointee.unlinked.store(time, ordering: .relaxed)
        }
    }

    /// Takes back `count` lookups; the node goes with the last one, at once or when the last pin is gone.
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

    /// The node's O_PATH descriptor, kept open until `unpin`; or a negative error number.
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

    /// Closes the descriptor of a node nobody pins.
    private func closeIfUnpinned(_ node: UnsafeMutablePointer<Node>) {
        let old = node.pointee.pinState.load(ordering: .acquiring)
        guard old & Node.descriptorMask != 0, old >> 32 == 0,
            node.pointee.pinState.compareExchange(expected: old, desired: 0, ordering: .acquiringAndReleasing).exchanged
        else { return }
        close(old, of: node.pointee.scope)
    }

    /// Closes the descriptor that was in a node's `pinState`.
    func close(_ hold: UInt64, of scope: UInt32) {
        _ = clinux_close(Int32(truncatingIfNeeded: hold & Node.descriptorMask) - 1)
        budget.remove(scope)
    }

    /// Lets go of every descriptor of a shut scope in which nobody is inside, for good: its filesystem can be unmounted. False
    /// while somebody outside of an operation has a node pinned (who asks where the granted directory is); to be called again then.
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
