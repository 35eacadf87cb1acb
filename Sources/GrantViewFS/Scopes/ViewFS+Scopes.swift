import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

extension FileStatus {
    /// The status of this process's root directory. It is nil if it cannot be read.
    fileprivate static var ofRoot: FileStatus? {
        var status = FileStatus()
        return clinux_statx(AT_FDCWD, "/", &status) == 0 ? status : nil
    }
}

// Adds grants and tracks their directories. Used by administration, never by a request.
extension ViewFS {
    /// Makes a scope for a grant whose directory is open, without showing it yet.
    ///
    /// Called by one thread at a time.
    ///
    /// - Parameters:
    ///   - given: An O_PATH descriptor, verified to be the bookmarked directory.
    ///   - copy: The same directory on a mount that shows other owners (`OwnerNamespace`).
    ///   - document: For a grant of one file. `descriptor` is then the file's directory on the
    ///     host. If the view shows a directory, it is that directory's workplace.
    ///   - rules: Of the grant. A document has none.
    ///   - isOffered: Whether a person has yet to allow it (`OfferQueue`).
    public func makeScope(
        for grant: GrantID, activation: Int64, readOnly: Bool, directory given: consuming FileDescriptor,
        copy: consuming FileDescriptor? = nil, crossesMounts: Bool, document: DocumentPlace? = nil, rules: GrantRules = .none,
        isOffered: Bool = false
    ) throws(Errno) -> Scope {
        let (number, isInRootMount) = try mount(of: given)
        var mountCopy: MountCopy?
        let descriptor: FileDescriptor
        switch consume copy {
        case .some(let copy):
            mountCopy = MountCopy(of: copy, given)
            descriptor = copy
        case .none: descriptor = given
        }
        let status = try descriptor.status()
        guard status.st.st_mode & S_IFMT == S_IFDIR else { throw Errno(ENOTDIR) }
        guard let id = coordinator.makeScope(refusing: isOffered ? .offered : readOnly ? .readOnly : .none) else { throw Errno(ENOSPC) }
        audit?.register(id.rawValue, of: grant)
        let kind = FilesystemKind(of: descriptor)
        let nodes = tree.addScope(
            id.rawValue, handleBase: handleBase(descriptor, status), crossesMounts: crossesMounts,
            // The kernel heeds no capability over files of owners without a number.
            usesCallerGroups: kind.hasServer || unmapped != nil)
        nodes.document = document
        nodes.mountCopy.withLock { $0 = mountCopy }
        nodes.ruled.folding = kind.folding
        nodes.ruled.names = namesLocks.lock(of: UInt64(truncatingIfNeeded: status.st.st_dev))
        if !rules.isEmpty { nodes.ruled.set(rules) }
        hostWatch.begin(nodes, directory: descriptor)
        let isTold = nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue && !crossesMounts
        nodes.isUnwatched.store(!isTold && document == nil, ordering: .relaxed)
        guard let root = tree.internRoot(descriptor, status, of: nodes) else { throw Errno(ENOMEM) }
        if let node = tree.nodes.find(root) { watch(root, node) }
        if let document {
            if document.isDirectory {
                nodes.documentRoot.store(root, ordering: .relaxed)
                watchPlace(ofDocumentIn: nodes)
            } else {
                try show(document, in: nodes)
            }
        }
        // A directory on another mount may have filesystems above it that are not watched.
        let isMoveTold = isInRootMount && nodes.watchMeans.load(ordering: .relaxed) == ChangeWatch.Means.names.rawValue
        let scope = Scope(
            id: id, grant: grant, activation: activation, nodes: nodes, rootNode: root, rootStatus: status,
            mount: number, isLocal: kind.isLocal, isMoveTold: isMoveTold, readOnly: readOnly)
        try records?.add(scope, next: coordinator.nextScope, isOffered: isOffered)
        return scope
    }

    /// The number of the mount that a directory is on, and whether the process's root directory is on it as well.
    private func mount(of directory: borrowing FileDescriptor) throws(Errno) -> (number: UInt64?, isOfRoot: Bool) {
        let status = try directory.status()
        var number: UInt64 = 0
        let hasNumber = clinux_mount_number(directory.number, &number) == 0
        let isOfRoot = status.has_mount_id && FileStatus.ofRoot.map { $0.has_mount_id && $0.mount_id == status.mount_id } ?? false
        return (hasNumber ? number : nil, isOfRoot)
    }

    /// Finds the mount whose copy another daemon has made to show other owners, so that paths are those on the machine.
    ///
    /// - Parameter path: The path that the granted directory had last.
    public func knowCopy(of scope: Scope, at path: [UInt8]) {
        guard let table = try? MountTable.current() else { return }
        tree.withRoot(of: scope.nodes) { number in
            guard number >= 0 else { return }
            let directory = FileDescriptor(owning: number)
            if let found = table.find(directory, expected: path) {
                let copy = try? MountCopy(of: directory, found)
                scope.nodes.mountCopy.withLock { $0 = copy }
            }
            _ = directory.release()
        }
    }

    /// Assigns device numbers to the filesystems of scopes in this order.
    ///
    /// Call it before the kernel has seen a file of the last ones.
    public func numberFilesystems(of scopes: [Scope]) {
        for scope in scopes { tree.devices.add(device: UInt64(truncatingIfNeeded: scope.rootStatus.st.st_dev)) }
    }

    /// The base for open_by_handle_at(2) on a directory's filesystem. Returns nil if opening by
    /// handle fails.
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

    /// Whether the granted directory was removed: it has no link, or its handle is stale.
    public func isRemoved(_ scope: Scope) -> Bool {
        var isRemoved = true
        tree.withRoot(of: scope.nodes) { descriptor in
            var status = FileStatus()
            isRemoved =
                descriptor == -ESTALE || (descriptor >= 0 && clinux_statx(descriptor, nil, &status) == 0 && status.st.st_nlink == 0)
        }
        return isRemoved
    }

    /// The granted directory's current path. Makes no call to its filesystem.
    public func path(of scope: Scope) -> [UInt8]? { path(of: scope.nodes) }

    func path(of scope: ScopeNodes) -> [UInt8]? {
        if let document = scope.document { return path(of: document) }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { buffer in
            var count = 0
            tree.withRoot(of: scope) { descriptor in
                if descriptor >= 0 { count = clinux_descriptor_path(descriptor, buffer.baseAddress!, buffer.count) }
            }
            return count > 0 ? buffer.prefix(count).map { UInt8(bitPattern: $0) } : nil
        }
    }

    /// Whether the granted directory is certainly still at this path.
    ///
    /// Makes no call to its filesystem. False means uncertain, so the caller must check.
    ///
    /// - Parameter moves: An earlier value of `directoryMoves`.
    public func isStill(_ scope: Scope, at path: [UInt8], moves: UInt64?) -> Bool {
        // A document can be replaced while its directory is unchanged.
        if scope.nodes.document != nil { return false }
        if let moves, scope.isMoveTold, scope.movesSeen.load(ordering: .relaxed) == moves { return true }
        // The kernel appends this to the path of a removed directory, and a directory can have such
        // a name.
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

    /// Discards the knowledge of where the scope's directory is.
    public func doubt(_ scope: Scope) { scope.movesSeen.store(0, ordering: .relaxed) }

    /// A value that changes when a directory may have been renamed or removed.
    ///
    /// It is nil if such changes are not reported.
    public var directoryMoves: UInt64? { hostWatch.movesSeen }

    /// Records that mounts have changed, and with them the paths of directories.
    public func mountsChanged() { hostWatch.countMove() }

    /// Finds scopes whose directories lie in one another.
    ///
    /// In one view the kernel then caches nothing below them, so that a change through one shows
    /// through the other immediately. Scopes of different views behave like two mounts:
    /// `HostChangeRelay` relays changes from one to the other. A scope that was marked once stays
    /// marked.
    ///
    /// - Parameter views: The view of each grant in a mount of several views. Empty for a mount of
    ///   one.
    public func markOverlaps(views: [GrantID: ViewName] = [:]) {
        // With write-back the kernel trusts its own sizes and data, and a change in another view
        // would wait for it.
        let areApart = !policy.writeBack
        let slash = UInt8(ascii: "/")
        let placed = names.open.compactMap { _, scope in
            path(of: scope).map { path in
                OverlapPlace(
                    path: path + (path.last == slash ? [] : [slash]), scope: scope, view: areApart ? views[scope.grant] : nil)
            }
        }
        // The directories above the current one, innermost last: those of each view, and those of
        // all views.
        var above: [ViewName?: [OverlapPlace]] = [:]
        var aboveOfAll: [(place: OverlapPlace, areOfSeveralViews: Bool)] = []
        // In this order a directory is followed by everything below it.
        for place in placed.sorted(by: { $0.path.lexicographicallyPrecedes($1.path) }) {
            while let last = above[place.view]?.last, !place.path.starts(with: last.path) { above[place.view]?.removeLast() }
            if let last = above[place.view]?.last {
                for scope in [last.scope, place.scope] { scope.nodes.cacheBypass.bitwiseOr(ScopeNodes.overlap, ordering: .relaxed) }
            }
            above[place.view, default: []].append(place)
            while let last = aboveOfAll.last, !place.path.starts(with: last.place.path) { aboveOfAll.removeLast() }
            let areOfSeveralViews = aboveOfAll.last.map { $0.areOfSeveralViews || $0.place.view != place.view } ?? false
            if areOfSeveralViews { haveViewsOverlapped.store(true, ordering: .relaxed) }
            aboveOfAll.append((place, areOfSeveralViews))
        }
    }

    /// A granted directory, by its path with a slash at the end.
    private struct OverlapPlace {
        let path: [UInt8]
        let scope: Scope
        let view: ViewName?
    }

    /// A scope's load: inodes that the kernel knows, running operations, and its counters.
    public func load(of scope: Scope) -> (inodes: Int, inFlight: Int, counts: ScopeCounts) {
        (scope.nodes.count, coordinator.occupants(of: scope.id).count, coordinator.counts(of: scope.id))
    }

    /// The number of descriptors that nodes, open files and open directories hold.
    public var descriptorCount: Int { tree.descriptorsInUse + files.count + directories.count }

    /// The number of lock requests that wait for another owner's lock.
    public var waitingLockCount: Int { locks.waitingCount }

    /// Whether a full withdrawal was carried out.
    public func isClosed(_ scope: Scope) -> Bool { scope.isClosed.load(ordering: .acquiring) || session == nil }

    /// Returns unused memory to the kernel: that of forgotten nodes, and of bursts of requests.
    ///
    /// Call it once a second from one thread, never from a request.
    public func trim() {
        let bytes = tree.trim() + files.trim() + directories.trim()
        let untrimmed = trimmed.wrappingAdd(bytes, ordering: .relaxed).newValue
        // Returning memory blocks every thread that allocates, so it must free enough, or the mount
        // must be idle.
        let isWorthwhile = untrimmed > 0 && (bytes == 0 || untrimmed > Self.worthTrimming)
        // Each thread's heap keeps its largest size. When the mount is quiet, hardly any thread is
        // blocked.
        let taken = session?.requestsTaken ?? 0
        let isQuiet = taken &- takenBefore.exchange(taken, ordering: .relaxed) < Self.fewRequests
        let isAfterMany = taken &- takenAtTrim.load(ordering: .relaxed) > Self.manyRequests
        guard isWorthwhile || (isQuiet && isAfterMany) else { return }
        trimmed.store(0, ordering: .relaxed)
        takenAtTrim.store(taken, ordering: .relaxed)
        clinux_trim_memory()
    }

    /// Whether `takeDenials` would return refusals since the last call.
    public func takeHasDenials() -> Bool { coordinator.takeHasDenials() }

    /// Invalidates the times of the root and other virtual directories after a change of names.
    ///
    /// It does not block. Call it without a lock.
    ///
    /// The names themselves are not invalidated, because that takes the lock of the directory
    /// (fs/fuse/dir.c, fuse_reverse_inval_entry). A program that lists the directory holds this
    /// lock while entries are copied to its memory. If that memory does not respond, the program
    /// holds it forever. The kernel looks the names up again soon, and
    /// `VirtualDirectories.cachedUntil` tells when that is certain.
    public func invalidateVirtualDirectories() {
        for id in names.takeUnannounced().union([NodeID.root.rawValue]) { _ = session?.notifier.invalidateAttributes(NodeID(id)) }
    }
}
