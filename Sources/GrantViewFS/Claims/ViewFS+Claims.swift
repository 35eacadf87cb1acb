import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// The slow path of operations in scopes with claims.
extension ViewFS {
    /// Names that an operation works on besides its node.
    ///
    /// One is in the node's directory. A rename has a second one in another directory.
    struct Names {
        var first: UnsafePointer<CChar>?
        var second: (parent: NodeID, name: UnsafePointer<CChar>)?
        var isLookup = false
        static var none: Names { Names(first: nil, second: nil) }
    }

    /// The claim for which an operation on a node must wait. `handle`: its open file.
    @inline(never)
    func blocker(_ caller: Caller, _ id: NodeID, _ node: NodePointer, _ entry: Entry, _ names: Names, file handle: UInt64?) -> UInt64? {
        // A lookup holds the directory's lock, so only a negative result waits. A positive one is
        // uncached here and leads to another request, which waits.
        if names.isLookup, let name = names.first, exists(name, in: id, node) { return nil }
        var use = ClaimWaitQueue.Use(uses: entry == .write ? [.writeContent, .writeMetadata] : [.readContent, .readMetadata])
        if names.first == nil { use.node = id.rawValue }
        // With write-back, write(2) asks for attributes by its open file, and then the kernel
        // acknowledges it alone.
        if policy.writeBack, let handle, let file = files.acquire(handle) {
            if file.pointee.canWrite { use.uses.append(.writeContent) }
            files.drop(handle)
        }
        return waiting.blocker(node.pointee.scope, use, caller) { self.item(id, node, names, isWrite: entry == .write) }
    }

    private func exists(_ name: UnsafePointer<CChar>, in id: NodeID, _ node: NodePointer) -> Bool {
        var status = FileStatus()
        let directory = tree.pin(node)
        defer { tree.unpin(id.rawValue, node) }
        return directory >= 0 && clinux_statx(directory, name, &status) == 0
    }

    /// The claim for which an operation on an open file must wait.
    @inline(never)
    func blocker(_ caller: Caller, _ file: UnsafeMutablePointer<OpenFile>, _ entry: Entry) -> UInt64? {
        var use = ClaimWaitQueue.Use(uses: [entry == .write ? .writeContent : .readContent], readsData: entry == .read)
        use.node = file.pointee.node
        // It may be a page fault for a store into a mapping, after which the kernel does not ask
        // again.
        if entry == .read, file.pointee.flags & O_ACCMODE == O_RDWR {
            (use.uses, use.readsData, use.mayMap) = ([.readContent, .writeContent], false, true)
        }
        return waiting.blocker(file.pointee.scope, use, caller) {
            guard let node = self.tree.nodes.find(file.pointee.node) else { return OperationItem(identities: [], isAnywhere: true) }
            return self.item(NodeID(file.pointee.node), node, .none, isWrite: entry == .write)
        }
    }

    /// Does the same by node, if the kernel opens files by itself.
    ///
    /// Later stores into a mapping wait for no claim.
    @inline(never)
    func blocker(_ caller: Caller, _ id: NodeID, _ node: NodePointer, _ entry: Entry) -> UInt64? {
        var use = ClaimWaitQueue.Use(uses: [entry == .write ? .writeContent : .readContent], readsData: entry == .read)
        use.node = id.rawValue
        return waiting.blocker(node.pointee.scope, use, caller) { self.item(id, node, .none, isWrite: entry == .write) }
    }

    /// The claim for which an operation on an open directory must wait.
    @inline(never)
    func blocker(_ caller: Caller, _ directory: UnsafeMutablePointer<OpenDirectory>, _ entry: Entry) -> UInt64? {
        guard let node = tree.nodes.find(directory.pointee.node) else { return nil }
        return blocker(caller, NodeID(directory.pointee.node), node, entry, .none, file: nil)
    }

    /// The position of a node now, from the files themselves: the tree's names may be stale.
    private func item(_ id: NodeID, _ node: NodePointer, _ names: Names, isWrite: Bool) -> OperationItem {
        let number = tree.pin(node)
        defer { tree.unpin(id.rawValue, node) }
        var item = OperationItem(identities: [ItemID(node.pointee.key)])
        guard number >= 0 else {
            item.isAnywhere = true
            return item
        }
        let own = dup(number)
        guard own >= 0 else {
            item.isAnywhere = true
            return item
        }
        let descriptor = FileDescriptor(owning: own)
        if node.pointee.type == S_IFDIR {
            item.ancestors = Array(ClaimTarget.chain(from: own).dropFirst())
        } else if let status = try? descriptor.status() {
            item.ancestors = ClaimTarget.directories(above: descriptor, status)
            // One of its other names may be claimed.
            item.isAnywhere = status.st.st_nlink > 1 || (status.st.st_nlink == 1 && item.ancestors.isEmpty)
        } else {
            item.isAnywhere = true
        }
        if let name = names.first { note(name, in: number, key: node.pointee.key, isWrite, &item) }
        if let (parent, name) = names.second, let other = tree.nodes.find(parent.rawValue) {
            let number = tree.pin(other)
            if number >= 0 {
                item.identities.append(ItemID(other.pointee.key))
                item.ancestors += ClaimTarget.chain(from: number)
                note(name, in: number, key: other.pointee.key, isWrite, &item)
            }
            tree.unpin(parent.rawValue, other)
        }
        return item
    }

    private func note(_ name: UnsafePointer<CChar>, in directory: Int32, key: NodeKey, _ isWrite: Bool, _ item: inout OperationItem) {
        item.places.append(ItemPlace(directory: ItemID(key), name: Array(UnsafeRawBufferPointer(start: name, count: strlen(name)))))
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0 else { return }
        let child = ItemID(NodeKey(status))
        item.identities.append(child)
        if isWrite { item.displaced.append(child) }
    }
}

// The administrative part of claims, never used by a request.
extension ViewFS {
    /// Makes a claim bind below these scopes. Returns false if `isCancelled` returned true.
    ///
    /// When it returns true, conflicting operations wait and none is running. Data written through
    /// the mount is in the files. The kernel caches no data with which it could serve such an
    /// operation itself. Call `unbind` in either case.
    ///
    /// Locking: no lock is held while the kernel is notified. Called by a thread that serves no
    /// requests.
    ///
    /// - Parameter progress: Gets the step, and how much of it is done, of how much.
    public func bind(
        _ claim: MandatoryClaim, in scopes: [Scope], isCancelled: () -> Bool, progress: (String, UInt64, UInt64) -> Void
    ) -> Bool {
        var hold = ClaimWaitQueue.Hold(
            process: claim.process, patience: claim.patience, scopes: Set(scopes.map(\.id.rawValue)), accesses: claim.parts.map(\.access),
            whole: [:])
        for scope in scopes {
            var chain: [ItemID] = []
            tree.withRoot(of: scope.nodes) { if $0 >= 0 { chain = ClaimTarget.chain(from: $0) } }
            hold.whole[scope.id.rawValue] = hold.accesses.filter { !$0.item.identities.allSatisfy { !chain.contains($0) } }.map(\.use)
        }
        waiting.begin(claim.id, hold)
        let isWriting = hold.accesses.contains { !$0.use.isReading }
        var directories: [UInt64] = []
        for scope in scopes {
            guard drain(scope, isCancelled, progress), flush(scope, claim.id, hold, isWriting, isCancelled, progress) else { return false }
            if isWriting { directories += nodes(of: scope, under: hold).filter(isDirectory) }
        }
        // A program may hold a listing, or the lock of a granted directory, forever: then this
        // claim continues without that step.
        let listings = claimInvalidator.invalidateListings(directories, self)
        // If the kernel trusts its own sizes forever, unopened files must become new inodes to it.
        var names: [ClaimInvalidator.Names] = []
        if isWriting, policy.writeBack {
            names = scopes.map { claimInvalidator.invalidateNames(in: $0, self) }
            guard dropDentries(of: scopes, isCancelled) else { return false }
        }
        guard claimInvalidator.wait(for: listings, names, isCancelled) else { return false }
        waiting.holdReads(claim.id)
        for scope in scopes { guard drain(scope, isCancelled, progress) else { return false } }
        return true
    }

    /// Ends a claim's effect: resumes waiters, and invalidates files that the claimant may have
    /// changed.
    ///
    /// - Parameter done: Called after that.
    public func unbind(_ id: UInt64, done: @escaping @Sendable () -> Void = {}) {
        guard let hold = waiting.end(id), hold.accesses.contains(where: { !$0.use.isReading }) else { return done() }
        let scopes = names.open.map(\.scope).filter { hold.scopes.contains($0.id.rawValue) }
        claimInvalidator.ending.wrappingAdd(1, ordering: .relaxed)
        // Waits for pages that are being read, so it runs on its own thread.
        _ = BackgroundTask { [self] in
            defer {
                done()
                claimInvalidator.ending.wrappingSubtract(1, ordering: .releasing)
            }
            guard let notifier = session?.notifier else { return }
            let invalidator = DataInvalidator(self, notifier)
            var directories: [UInt64] = []
            for scope in scopes {
                for node in nodes(of: scope, under: hold) {
                    if policy.writeBack || isOpen(node) {
                        if isDirectory(node) { directories.append(node) } else { invalidator.add([node]) }
                    } else {
                        _ = notifier.invalidateAttributes(NodeID(node))
                    }
                }
            }
            for node in directories { _ = notifier.invalidateAttributes(NodeID(node)) }
            _ = claimInvalidator.invalidateListings(directories, self)
            while invalidator.isUnderWay {
                usleep(10_000)
                invalidator.poll()
            }
        }
    }

    /// Makes the kernel drop its dentries below these grants' names at their next use.
    ///
    /// Returns false if `isCancelled` returned true.
    ///
    /// The names are at the root, whose lock any program may hold, so no notification is sent.
    /// Instead the next lookup fails with ESTALE, once. On revalidation the kernel then drops the
    /// dentry with its subtree and looks it up again (fs/fuse/dir.c, fuse_dentry_revalidate).
    /// Without a dentry it retries once (fs/namei.c, LOOKUP_REVAL). This function waits until the
    /// kernel must revalidate.
    private func dropDentries(of scopes: [Scope], _ isCancelled: () -> Bool) -> Bool {
        // From the claim's begin on, no reply about these names may be cached.
        let until = scopes.reduce(0) { max($0, names.cachedUntil($1)) }
        for scope in scopes where tree.isCounted(scope.rootNode) { scope.dropsOnNextLookup.store(true, ordering: .releasing) }
        while Clock.monotonic < until {
            if isCancelled() { return false }
            usleep(UInt32(clamping: min(until - Clock.monotonic, 5_000_000) / 1_000 + 1))
        }
        return true
    }

    /// The number of operations that wait for claims.
    public var waitingCount: Int { waiting.count }

    /// Waits for operations that were inside when the claim began.
    private func drain(_ scope: Scope, _ isCancelled: () -> Bool, _ progress: (String, UInt64, UInt64) -> Void) -> Bool {
        var inside = coordinator.occupants(of: scope.id)
        let count = UInt64(truncatingIfNeeded: inside.count)
        var backoff: UInt32 = 20
        while !inside.isEmpty {
            inside.removeAll { !coordinator.isInside($0) }
            if inside.isEmpty { break }
            if isCancelled() { return false }
            if backoff >= 10_000 { progress("draining", count &- UInt64(truncatingIfNeeded: inside.count), count) }
            usleep(backoff)
            backoff = min(backoff * 2, 50_000)
        }
        return true
    }

    /// Makes the kernel write back the claimed files and drop its caches, except listings.
    private func flush(
        _ scope: Scope, _ claim: UInt64, _ hold: ClaimWaitQueue.Hold, _ isWriting: Bool, _ isCancelled: () -> Bool,
        _ progress: (String, UInt64, UInt64) -> Void
    ) -> Bool {
        guard let notifier = session?.notifier else { return true }
        let all = nodes(of: scope, under: hold)
        let open = all.filter(mayBeDirty)
        // A reading claim drops only files that may change. Dropping mapped pages makes a store
        // fault again.
        let forgotten = isWriting ? all : open
        let files = isWriting ? all.filter { !isDirectory($0) } : []
        let (coordinator, waiting, id) = (coordinator, waiting, scope.id)
        let counter = FlushCounter()
        let task = BackgroundTask {
            for node in forgotten {
                _ = notifier.invalidateAttributes(NodeID(node))
                counter.done.wrappingAdd(1, ordering: .relaxed)
            }
            for _ in 0..<4 {
                let before = coordinator.gate(id).pointee.flushedBytes.load(ordering: .relaxed)
                for node in open { waiting.flush(claim, node) { _ = notifier.invalidateData(NodeID(node)) } }
                if coordinator.gate(id).pointee.flushedBytes.load(ordering: .relaxed) == before { break }
            }
            if isWriting { for node in files { waiting.flush(claim, node) { _ = notifier.invalidateData(NodeID(node)) } } }
        }
        var (backoff, next) = (UInt32(20), Clock.monotonic + 100_000_000)
        while !task.isDone {
            if isCancelled() { return false }
            if Clock.monotonic >= next {
                progress("flushing", counter.done.load(ordering: .relaxed), UInt64(truncatingIfNeeded: forgotten.count))
                next = Clock.monotonic + 100_000_000
            }
            usleep(backoff)
            backoff = min(backoff * 2, 5_000)
        }
        return true
    }

    private final class FlushCounter: Sendable {
        let done = Atomic<UInt64>(0)
    }

    /// The nodes of the claimed items that the kernel may know.
    ///
    /// These are a claimed file's own nodes, otherwise all nodes of the scope.
    private func nodes(of scope: Scope, under hold: ClaimWaitQueue.Hold) -> [UInt64] {
        let ids = scope.nodes.ids
        if hold.whole[scope.id.rawValue]?.isEmpty == false { return ids }
        let claimed = Set(hold.accesses.flatMap(\.item.identities))
        let known = ids.filter { id in tree.nodes.find(id).map { claimed.contains(ItemID($0.pointee.key)) } ?? false }
        let hasDirectory = known.contains { tree.nodes.find($0)?.pointee.type == S_IFDIR }
        return hasDirectory ? ids : known
    }
}
