import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Caches open files for mounts on which the kernel opens files without a request.
///
/// Each node has one file for reading and one for writing, or one directory. They are opened when a
/// request needs them. The kernel does not report when they are no longer needed. So files unused
/// for a second are closed if they can be reopened, and sooner under pressure.
///
/// Locking: its own, rank 2, held for a moment.
final class CachedDescriptors: Sendable {
    /// Nodes with cached opens, once per open.
    private let nodes = Lock<[UInt64]>([])
    private let wake = Semaphore()
    private let isUnderPressure = Atomic<Bool>(false)
    /// The number of cached opens from which on unused ones are closed immediately.
    private let limit: Int
    private static let pause = 1_000
    /// Sleep between sweeps, in microseconds, even when they are requested more often.
    private static let shortPause: UInt32 = 1_000

    init(limit: Int) { self.limit = limit }

    /// Adds a node for which a file was opened.
    func add(_ id: UInt64) {
        let count = nodes.withLock { nodes in
            nodes.append(id)
            return nodes.count
        }
        if count == limit || count % max(limit, 1) == 0 { wake.post() }
    }

    /// Requests a sweep that closes everything unused.
    func requestFullSweep() {
        isUnderPressure.store(true, ordering: .relaxed)
        wake.post()
    }

    func drain() -> [UInt64] {
        nodes.withLock { nodes in
            defer { nodes = [] }
            return nodes
        }
    }

    func putBack(_ ids: [UInt64]) { if !ids.isEmpty { nodes.withLock { $0 += ids } } }

    /// Starts the sweeper. Call it before the first request.
    ///
    /// If its thread cannot be made, files stay open until the kernel forgets them.
    func start(for view: ViewFS) {
        _ = try? WorkerThread.start("grantfs-kept") { [self, weak view] in
            Identity.resetOnThisThread()
            while let view, view.session?.hasEnded != true {
                let isUnderPressure = isUnderPressure.exchange(false, ordering: .relaxed)
                view.pauseGate.run { view.closeUnused(all: isUnderPressure || nodes.withLock { $0.count } > limit) }
                usleep(Self.shortPause)
                wake.waitForAny(within: Self.pause)
            }
        }.detach()
    }
}

// Finds, opens and closes cached files.
extension ViewFS {
    /// The sweeper thread's slot.
    static let sweeperSlot = lockSlots.upperBound

    /// Returns the cached file of a node, and opens it if necessary.
    ///
    /// The caller is inside the node's scope, acts as the user, has the node pinned (`descriptor`)
    /// and its cache in use. `error` is a negative error number on failure.
    ///
    /// `must`: acknowledged data must be written, so shares of descriptors are ignored and leases
    /// waited for.
    @inline(__always)
    func cachedFile(
        _ id: UInt64, _ node: NodePointer, _ descriptor: Int32, forWriting writes: Bool, as caller: Caller, must: Bool = false
    ) -> (file: UnsafeMutablePointer<OpenFile>?, error: Int32) {
        let kept = node.pointee.cachedOpens
        if kept.writer != 0, let file = files.find(kept.writer), writes || file.pointee.canRead { return (file, 0) }
        if !writes, kept.reader != 0, let file = files.find(kept.reader) { return (file, 0) }
        return open(id, node, descriptor, forWriting: writes, as: caller, must: must)
    }

    @inline(never)
    private func open(
        _ id: UInt64, _ node: NodePointer, _ descriptor: Int32, forWriting writes: Bool, as caller: Caller, must: Bool
    ) -> (file: UnsafeMutablePointer<OpenFile>?, error: Int32) {
        if descriptor < 0 { return (nil, descriptor) }
        let waiting = must ? 0 : O_NONBLOCK
        var (flags, appendsOnly) = (writes ? O_RDWR : O_RDONLY, false)
        var opened = tree.evictingIfNeeded { clinux_reopen(descriptor, flags | waiting) }
        if writes, opened == -EACCES {
            flags = O_WRONLY
            opened = tree.evictingIfNeeded { clinux_reopen(descriptor, flags | waiting) }
        }
        if writes, opened == -EPERM {
            // An append-only file (FS_APPEND_FL) can only be opened with O_APPEND.
            (flags, appendsOnly) = (O_RDWR, true)
            opened = tree.evictingIfNeeded { clinux_reopen(descriptor, flags | O_APPEND | waiting) }
        }
        if opened < 0 { return (nil, opened) }
        return cacheFile(keepingAccessTime(opened), of: id, node, flags, as: caller, appendsOnly: appendsOnly, must: must)
    }

    /// Caches an opened file. Takes ownership of the descriptor even when it fails.
    func cacheFile(
        _ opened: Int32, of id: UInt64, _ node: NodePointer, _ flags: Int32, as caller: Caller, appendsOnly: Bool = false,
        must: Bool = false
    ) -> (file: UnsafeMutablePointer<OpenFile>?, error: Int32) {
        let descriptor = FileDescriptor(owning: opened)
        let scope = node.pointee.scope
        if !reserveShare(scope, caller.uid) {
            guard must else { return (nil, -ENFILE) }
            tree.forceReserveShare(scope: scope, user: caller.uid)
        }
        let file = OpenFile(
            descriptor: descriptor, node: id, scope: scope, opener: (caller.uid, caller.gid, caller.pid), flags: flags,
            appendsOnly: appendsOnly)
        let canWrite = file.canWrite
        guard let number = files.add(file, by: Int(truncatingIfNeeded: id)) else { return (nil, -ENFILE) }
        let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
        if containment & Containment.inherited != 0 { files.inherit(containment, number) }
        let found = node.pointee.cacheOpen(number, forWriting: canWrite)
        if found == number { cachedDescriptors.add(id) } else { files.drop(number) }
        return (files.find(found), 0)
    }

    /// Reserves a share of descriptors, if necessary by closing unused cached files.
    private func reserveShare(_ scope: UInt32, _ user: UInt32) -> Bool {
        for _ in 0..<Self.sweeps {
            if tree.reserveShare(scope: scope, user: user) { return true }
            cachedDescriptors.requestFullSweep()
            usleep(1_000)
        }
        return false
    }

    private static let sweeps = 100

    /// As `cachedFile`, for a directory.
    func cachedDirectory(
        _ id: UInt64, _ node: NodePointer, _ descriptor: Int32, as caller: Caller
    ) -> (directory: UnsafeMutablePointer<OpenDirectory>?, error: Int32) {
        let kept = node.pointee.cachedOpens.reader
        if kept != 0, let directory = directories.find(kept) { return (directory, 0) }
        if descriptor < 0 { return (nil, descriptor) }
        let opened = tree.evictingIfNeeded { clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY) }
        if opened < 0 { return (nil, opened) }
        if leavesDirectoryAccessTimes.load(ordering: .relaxed) { keepAccessTime(opened) }
        let backing = FileDescriptor(owning: opened)
        let scope = node.pointee.scope
        guard reserveShare(scope, caller.uid),
            let number = directories.add(OpenDirectory(descriptor: backing, node: id, scope: scope, user: caller.uid))
        else { return (nil, -ENFILE) }
        let found = node.pointee.cacheOpen(number, forWriting: false)
        if found == number { cachedDescriptors.add(id) } else { directories.drop(number) }
        return (directories.find(found), 0)
    }

    // MARK: closing

    /// Closes files that were unused since the last call, or `all` that are unused now.
    ///
    /// Called by the sweeper thread, whose slot is `sweeperSlot`.
    func closeUnused(all: Bool) {
        var left: [UInt64] = []
        var seen = Set<UInt64>()
        for id in cachedDescriptors.drain() {
            guard seen.insert(id).inserted, let number = tree.nodes.find(id)?.pointee.scope, let scope = tree.scope(number) else {
                continue
            }
            let isLeft = tree.withLive(id, in: scope) { node -> Bool in
                guard node.pointee.hasCachedOpens else { return false }
                if node.pointee.testAndClearUsed(), !all { return true }
                return !close(id, node)
            }
            if isLeft == true { left.append(id) }
        }
        cachedDescriptors.putBack(left)
    }

    /// Closes a node's cached files. Returns false if they are in use or could not be reopened.
    private func close(_ id: UInt64, _ node: NodePointer) -> Bool {
        let slot = Self.sweeperSlot
        guard coordinator.enter(ScopeID(rawValue: node.pointee.scope), for: .cacheWrite, slot: slot).isInside else {
            // They are closed with the scope.
            return false
        }
        defer { coordinator.leave(slot: slot) }
        if node.pointee.type == S_IFREG, !canReopen(id, node) { return false }
        guard let kept = node.pointee.takeCachedOpens() else { return false }
        closeCached(kept.reader, kept.writer, isDirectory: node.pointee.type == S_IFDIR)
        return true
    }

    private func canReopen(_ id: UInt64, _ node: NodePointer) -> Bool {
        // A server may refuse later, and may not find a file without a name.
        if node.pointee.usesCallerGroups { return false }
        node.pointee.beginUse()
        defer { node.pointee.endUse() }
        let kept = node.pointee.cachedOpens
        if let file = files.find(kept.writer) {
            settleCachedTime(of: node, file)
            return reopens(file, O_RDWR)
        }
        // Root may read everything.
        if Identity.isRoots { return true }
        return files.find(kept.reader).map { reopens($0, O_RDONLY) } ?? true
    }

    private func reopens(_ file: UnsafeMutablePointer<OpenFile>, _ flags: Int32) -> Bool {
        if file.pointee.appendsOnly { return false }
        let opened = clinux_reopen(file.pointee.descriptor, flags | O_NONBLOCK)
        return opened >= 0 && clinux_close(opened) == 0
    }

    func closeCached(_ reader: UInt64, _ writer: UInt64, isDirectory: Bool) {
        if isDirectory {
            directories.drop(reader)
            return
        }
        if reader != 0 { files.drop(reader) }
        if writer != 0 { files.drop(writer) }
    }

    /// Closes the cached files of a shut scope that no operation is inside.
    func closeCached(of scope: ScopeNodes) {
        for id in scope.ids {
            _ = tree.withLive(id, in: scope) { node in
                guard node.pointee.hasCachedOpens, let kept = node.pointee.takeCachedOpens() else { return }
                closeCached(kept.reader, kept.writer, isDirectory: node.pointee.type == S_IFDIR)
            }
        }
    }

    /// Adopts the cached files of another daemon.
    func takeOverCached() {
        files.forEachUnpinned { cachedDescriptors.add($0.node) }
        directories.forEachUnpinned { cachedDescriptors.add($0.node) }
    }
}
