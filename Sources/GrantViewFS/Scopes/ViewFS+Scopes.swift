import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

extension FileStatus {
    /// Of the root directory of this process; nil when it cannot be looked at.
    fileprivate static var ofRoot: FileStatus? {
        var status = FileStatus()
        return clinux_statx(AT_FDCWD, "/", &status) == 0 ? status : nil
    }
}

// How grants come in: the road of the administrator, never of a request.
extension ViewFS {
    /// Makes a scope for a grant whose directory is open, without showing it yet.
    /// `descriptor`: O_PATH, verified to be the bookmarked directory. Called by one thread at a time.
    ///
    /// `document`: of a grant of one file; the directory is the one that holds it on the host, or, where the view shows a directory, its workplace.
    public func makeScope(
        for grant: GrantID, activation: Int64, readOnly: Bool, directory descriptor: consuming FileDescriptor, crossesMounts: Bool,
        document: DocumentPlace? = nil
    ) throws(Errno) -> Scope {
        let status = try descriptor.status()
        guard status.st.st_mode & S_IFMT == S_IFDIR else { throw Errno(ENOTDIR) }
        guard let id = coordinator.makeScope(refusing: readOnly ? .readOnly : .none) else { throw Errno(ENOSPC) }
        // Before the descriptor is given away.
        audit?.register(id.rawValue, of: grant)
        var number: UInt64 = 0
        let hasNumber = clinux_mount_number(descriptor.number, &number) == 0
        let kind = FilesystemKind(of: descriptor)
        let nodes = tree.addScope(
            id.rawValue, handleBase: handleBase(descriptor, status), crossesMounts: crossesMounts, usesCallerGroups: kind.hasServer)
        nodes.document = document
        hostWatch?.begin(nodes, directory: descriptor)
        let isTold = nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue && !crossesMounts
        nodes.isUnwatched.store(!isTold && document == nil, ordering: .relaxed)
        guard let root = tree.internRoot(descriptor, status, of: nodes) else { throw Errno(ENOMEM) }
        if let node = tree.nodes.find(root) { watch(root, node) }
        if let document {
            if document.isDirectory { nodes.documentRoot.store(root, ordering: .relaxed) } else { try show(document, in: nodes) }
        }
        // Above a directory on another mount than the root there are filesystems that perhaps nobody watches.
        let isInRootMount = status.has_mount_id && FileStatus.ofRoot.map { $0.has_mount_id && $0.mount_id == status.mount_id } ?? false
        let isMoveTold = isInRootMount && nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue
        let scope = Scope(
            id: id, grant: grant, activation: activation, nodes: nodes, rootNode: root, rootStatus: status,
            mount: hasNumber ? number : nil, isLocal: kind.isLocal, isMoveTold: isMoveTold, readOnly: readOnly)
        try records?.add(scope, next: coordinator.nextScope)
        return scope
    }

    /// What open_by_handle_at(2) takes as the filesystem, if this process may open by handle there at all.
    private func handleBase(_ directory: borrowing FileDescriptor, _ status: FileStatus) -> HandleBase? {
        let number = directory.number
        let make: () -> HandleBase? = {
            let opened = clinux_reopen(number, O_RDONLY | O_DIRECTORY)
            guard opened >= 0 else { return nil }
            let base = FileDescriptor(owning: opened)
            var handle = clinux_handle()
            guard clinux_name_to_handle(number, &handle) == 0 else { return nil }
            let again = clinux_open_by_handle(opened, &handle, clinux_O_PATH)
            guard again >= 0 else { return nil }
            _ = clinux_close(again)
            return HandleBase(base)
        }
        return status.has_mount_id ? handleBases.base(of: status.mount_id, make) : make()
    }

    /// Whether the granted directory still exists: removed directories have no name any more.
    public func isRemoved(_ scope: Scope) -> Bool {
        var isRemoved = true
        tree.withRoot(of: scope.nodes) { descriptor in
            var status = FileStatus()
            isRemoved =
                descriptor == -ESTALE || (descriptor >= 0 && clinux_statx(descriptor, nil, &status) == 0 && status.st.st_nlink == 0)
        }
        return isRemoved
    }

    /// Where the granted directory is now. Its filesystem is not asked.
    public func path(of scope: Scope) -> [UInt8]? { path(of: scope.nodes) }

    func path(of scope: ScopeNodes) -> [UInt8]? {
        if let document = scope.document { return path(of: document) }
        var buffer = [UInt8](repeating: 0, count: 16_384)
        var count = 0
        tree.withRoot(of: scope) { descriptor in
            guard descriptor >= 0 else { return }
            count = buffer.withUnsafeMutableBytes {
                clinux_descriptor_path(descriptor, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
        }
        return count > 0 ? Array(buffer.prefix(count)) : nil
    }

    /// Whether the granted directory is where it was and was not removed, as far as that can be said without asking its filesystem. False when it
    /// is not certain: then look. `moves`: `directoryMoves` before.
    public func isStill(_ scope: Scope, at path: [UInt8], moves: UInt64?) -> Bool {
        // Another file can be in a document's place whatever its directory does.
        if scope.nodes.document != nil { return false }
        if let moves, scope.isMoveTold, scope.movesSeen.load(ordering: .relaxed) == moves { return true }
        // So the kernel writes the path of what was removed, and so a directory can be called.
        guard scope.isLocal, !path.isEmpty, !path.suffix(10).elementsEqual(" (deleted)".utf8) else { return false }
        var isStill = false
        tree.withRoot(of: scope.nodes) { descriptor in
            guard descriptor >= 0 else { return }
            withUnsafeTemporaryAllocation(byteCount: path.count + 1, alignment: 1) { buffer in
                let name = buffer.baseAddress!.assumingMemoryBound(to: CChar.self)
                let count = clinux_descriptor_path(descriptor, name, buffer.count)
                isStill = count == path.count && memcmp(name, path, count) == 0
            }
        }
        scope.movesSeen.store(isStill ? moves ?? 0 : 0, ordering: .relaxed)
        return isStill
    }

    /// What is known of the directory's place is not to be relied on.
    public func doubt(_ scope: Scope) { scope.movesSeen.store(0, ordering: .relaxed) }

    /// Another number when a directory may have been renamed or removed since, where that is told; nil when it cannot be said.
    public var directoryMoves: UInt64? { hostWatch?.movesSeen }

    /// The mounts have changed, and with them where directories are.
    public func mountsChanged() { hostWatch?.countMove() }

    /// Finds the scopes of which one's directory lies in another's, and has the kernel ask for everything below them, so that what is
    /// changed through one shows through the other at once. A scope once found stays so.
    public func markOverlaps() {
        let slash = UInt8(ascii: "/")
        let placed = names.open.compactMap { _, scope in
            path(of: scope).map { (path: $0 + ($0.last == slash ? [] : [slash]), scope: scope) }
        }
        var above: [(path: [UInt8], scope: Scope)] = []
        for place in placed.sorted(by: { $0.path.lexicographicallyPrecedes($1.path) }) {
            // In this order everything below a directory follows it at once.
            while let last = above.last, !place.path.starts(with: last.path) { above.removeLast() }
            if let last = above.last {
                for scope in [last.scope, place.scope] { scope.nodes.cacheBypass.bitwiseOr(ScopeNodes.overlap, ordering: .relaxed) }
            }
            above.append(place)
        }
    }

    /// How many inodes the kernel knows of a scope, how many operations are in it, and what has gone through it.
    public func load(of scope: Scope) -> (inodes: Int, inFlight: Int, counts: ScopeCounts) {
        (scope.nodes.count, coordinator.occupants(of: scope.id).count, coordinator.counts(of: scope.id))
    }

    /// Descriptors that nodes, open files and open directories hold.
    public var descriptorCount: Int { tree.descriptorsInUse + files.count + directories.count }

    /// Requests for a lock that wait for somebody else's.
    public var waitingLockCount: Int { locks.waitingCount }

    /// Whether a withdrawal of everything was carried through.
    public func isClosed(_ scope: Scope) -> Bool { scope.isClosed.load(ordering: .acquiring) || session == nil }

    /// Gives memory that was needed for what the kernel has forgotten, and for many requests at once, back to it. To be called once a second by one thread, not on the
    /// way of a request.
    public func trim() {
        let bytes = tree.trim() + files.trim() + directories.trim()
        let untrimmed = trimmed.wrappingAdd(bytes, ordering: .relaxed).newValue
        // Names and indices as well. That stops whoever allocates for a moment, so it has to be worth it, or nothing is going on.
        let isWorthwhile = untrimmed > 0 && (bytes == 0 || untrimmed > Self.worthTrimming)
        // Each thread's heap keeps what it has ever needed. Hardly anybody is there to be stopped.
        let taken = session?.requestsTaken ?? 0
        let isQuiet = taken &- takenBefore.exchange(taken, ordering: .relaxed) < Self.fewRequests
        let isAfterMany = taken &- takenAtTrim.load(ordering: .relaxed) > Self.manyRequests
        guard isWorthwhile || (isQuiet && isAfterMany) else { return }
        trimmed.store(0, ordering: .relaxed)
        takenAtTrim.store(taken, ordering: .relaxed)
        clinux_trim_memory()
    }

    /// Whether there are any for `takeDenials` since the last call.
    public func takeHasDenials() -> Bool { coordinator.takeHasDenials() }

    /// Makes the kernel look anew at the times of the root, and of other virtual directories, after a change of their names. It waits for nobody. Holding no lock.
    ///
    /// The names themselves are not told: that would take the lock of the directory (fs/fuse/dir.c, fuse_reverse_inval_entry), which whoever lists it
    /// holds while entries are copied to memory of his own, for ever if that does not answer. The kernel asks for them again by itself
    /// before long; `VirtualDirectories.cachedUntil` says when that is for certain.
    public func invalidateVirtualDirectories() {
        for id in names.takeUnannounced().union([NodeID.root.rawValue]) { _ = session?.notifier.invalidateAttributes(NodeID(id)) }
    }
}
