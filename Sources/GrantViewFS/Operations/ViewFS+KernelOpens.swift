import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Where the kernel opens files and directories by itself, and no request says so (docs/decisions/zero-message-open.md): operations come by nodes alone.
extension ViewFS {
    /// As `onFile`, by the file's node. `writes`: the file has to be open for writing.
    ///
    /// Always inlined: a function of its own would count references to what `body` has with it.
    @inline(__always)
    func onCachedFile(
        _ request: consuming Request, _ id: NodeID, for entry: Entry, writes: Bool, writeBackSize: Int? = nil,
        _ body: (consuming Request, UnsafeMutablePointer<OpenFile>) -> Void
    ) {
        guard let node = tree.nodes.find(id.rawValue), node.pointee.type == S_IFREG else {
            request.reply(error: id.isVirtual ? EISDIR : ESTALE)
            return
        }
        // Before the gate: who comes behind it finds what has to be forgotten.
        markMayHavePages(node)
        let slot = request.worker.pointee.slot
        let scope = ScopeID(rawValue: node.pointee.scope)
        var verdict = coordinator.enter(scope, for: entry, slot: slot)
        if verdict.isInside, writeBackSize == nil ? isOutside(id, node, for: entry) : refuses(node.pointee.containment, entry) {
            coordinator.leave(slot: slot)
            verdict = .revoked
        }
        guard verdict.isInside else {
            if let writeBackSize { return drop(request, writeBackSize, of: id.rawValue, in: scope.rawValue, verdict) }
            return refuse(request, verdict, scope: scope.rawValue, readOf: entry == .read ? id.rawValue : 0)
        }
        if verdict == .congested, workerQuota.exceedsQuota(request, in: scope.rawValue) {
            return parkForQuota(request, entry, scope: scope.rawValue)
        }
        if isClaimed(verdict, entry, scope.rawValue), let hold = blocker(request.caller, id, node, entry) {
            return parkForClaim(request, for: hold, scope: scope.rawValue, node: id.rawValue)
        }
        let descriptor = tree.pin(node)
        node.pointee.beginUse()
        // What the cache brings comes from nobody: it is the last writer's.
        let caller = writeBackSize == nil ? request.caller : writer(of: node, descriptor)
        let identity = Identity.assume(caller, groups: node.pointee.usesCallerGroups)
        if entry.isChange { Identity.keepSetID(!request.killsSetID) }
        let (file, error) =
            identity == 0
            ? cachedFile(id.rawValue, node, descriptor, forWriting: writes, as: caller, must: writeBackSize != nil) : (nil, 0 - identity)
        if let file {
            body(request, file)
        } else if isLease(error, node) {
            leases.wait(request, in: scope.rawValue, nil)
        } else {
            request.reply(error: Errno.number(of: error))
        }
        node.pointee.endUse()
        tree.unpin(id.rawValue, node)
        coordinator.leave(slot: slot)
    }

    /// As `onDirectory`, by the directory's node.
    @inline(never)
    func onCachedDirectory(
        _ request: consuming Request, _ id: NodeID, for entry: Entry,
        _ body: (consuming Request, UnsafeMutablePointer<OpenDirectory>) -> Void
    ) {
        onNode(request, id, for: entry) { request, node, descriptor in
            guard node.pointee.type == S_IFDIR else {
                request.reply(error: ENOTDIR)
                return
            }
            node.pointee.beginUse()
            let found = cachedDirectory(id.rawValue, node, descriptor, as: request.caller)
            if let directory = found.directory { body(request, directory) } else { request.reply(error: Errno.number(of: found.error)) }
            node.pointee.endUse()
        }
    }

    @inline(__always)
    private func markMayHavePages(_ node: NodePointer) {
        if !node.pointee.mayHavePages.load(ordering: .relaxed) { node.pointee.mayHavePages.store(true, ordering: .sequentiallyConsistent) }
    }

    /// In whose name the kernel's cache writes: the last one's who asked to write, else the file's owner's, who has stored into a mapping or could have.
    private func writer(of node: NodePointer, _ descriptor: Int32) -> Caller {
        if let writer = node.pointee.writer { return Caller(uid: writer.user, gid: writer.group, pid: writer.process, umask: 0) }
        var status = FileStatus()
        guard descriptor >= 0, clinux_statx(descriptor, nil, &status) == 0 else { return Caller(uid: 0, gid: 0, pid: 0, umask: 0) }
        return Caller(uid: status.st.st_uid, gid: status.st.st_gid, pid: 0, umask: 0)
    }

    /// The kernel asks for `security.capability` before it takes a write(2) into its cache for the first time since it has heard of the file's attributes
    /// (fs/inode.c, file_remove_privs), and whenever it was told that there are some. That is where opening for writing is made up for. Where that is refused there are capabilities, so the kernel takes them away, and is told the error
    /// (`writeRefusal`). An error here would count as none, and the write as done.
    ///
    /// Programs that ask get no value in either case: they come once more, for that.
    static func probeWritable(_ view: ViewFS, _ request: consuming Request, _ id: NodeID) {
        let hasSome = 1
        guard let node = view.tree.nodes.find(id.rawValue), node.pointee.type == S_IFREG else {
            request.reply(error: id.isVirtual ? ENODATA : ESTALE)
            return
        }
        view.markMayHavePages(node)
        let slot = request.worker.pointee.slot
        let scope = ScopeID(rawValue: node.pointee.scope)
        let verdict = view.coordinator.enter(scope, for: .write, slot: slot)
        guard verdict.isInside else {
            request.reply(xattrSize: hasSome)
            return
        }
        if view.isOutside(id, node, for: .write) {
            view.coordinator.leave(slot: slot)
            request.reply(xattrSize: hasSome)
            return
        }
        if verdict == .congested, view.workerQuota.exceedsQuota(request, in: scope.rawValue) {
            return view.parkForQuota(request, .write, scope: scope.rawValue)
        }
        if view.isClaimed(verdict, .write, scope.rawValue), let hold = view.blocker(request.caller, id, node, .write) {
            return view.parkForClaim(request, for: hold, scope: scope.rawValue, node: id.rawValue)
        }
        let error = view.openForWriting(request.caller, id, node)
        if view.isLease(error, node) {
            view.leases.wait(request, in: scope.rawValue, nil)
        } else if error < 0 {
            request.reply(xattrSize: hasSome)
        } else {
            node.pointee.recordWriter(user: request.caller.uid, group: request.caller.gid, process: request.caller.pid)
            request.reply(error: ENODATA)
        }
        view.coordinator.leave(slot: slot)
    }

    /// Why a write is refused that `probeWritable` has not let pass; EPERM, which it is to programs that remove the attribute, when it would be by now.
    func writeRefusal(_ caller: Caller, _ id: NodeID, _ node: NodePointer) -> Int32 {
        let error = openForWriting(caller, id, node)
        return error < 0 ? error : -EPERM
    }

    /// Sees whether a file can be opened for writing, or opens it where that could be different later; inside its scope. Returns 0 or a negative error number.
    private func openForWriting(_ caller: Caller, _ id: NodeID, _ node: NodePointer) -> Int32 {
        let identity = Identity.assume(caller, groups: node.pointee.usesCallerGroups)
        if identity != 0 { return 0 - identity }
        let descriptor = tree.pin(node)
        node.pointee.beginUse()
        defer {
            node.pointee.endUse()
            tree.unpin(id.rawValue, node)
        }
        if descriptor < 0 { return descriptor }
        // Not opened before it is written to: whoever runs it on the host would hear that it is open for writing, and many only ask.
        if node.pointee.usesCallerGroups { return cachedFile(id.rawValue, node, descriptor, forWriting: true, as: caller).error }
        let error = clinux_may_write(descriptor)
        // Opened when it still could be. What makes a file immutable binds who has it open as well.
        return error == -EACCES && node.pointee.cachedOpens.writer != 0 ? 0 : error
    }

    /// Before a file is made harder to open, or loses its name where a server might then know it no more: what programs may have open of it is opened.
    func openBeforeChange(_ id: NodeID, _ node: NodePointer, as caller: Caller) {
        guard kernelOpens, node.pointee.type == S_IFREG, node.pointee.usesCallerGroups || !Identity.isRoots else { return }
        let descriptor = tree.pin(node)
        node.pointee.beginUse()
        if cachedFile(id.rawValue, node, descriptor, forWriting: true, as: caller).file == nil {
            _ = cachedFile(id.rawValue, node, descriptor, forWriting: false, as: caller)
        }
        node.pointee.endUse()
        tree.unpin(id.rawValue, node)
    }

    /// Whether the kernel may have pages of a file that are dirty, or become so.
    func mayBeDirty(_ node: NodePointer) -> Bool {
        kernelOpens ? node.pointee.mayHavePages.load(ordering: .sequentiallyConsistent) : node.pointee.writers.load(ordering: .relaxed) > 0
    }

    func mayBeDirty(_ id: UInt64) -> Bool { tree.nodes.find(id).map { $0.pointee.type == S_IFREG && mayBeDirty($0) } ?? false }

    /// Gives a kept file the time that the kernel shows, as `settleTime`; for who is inside its scope.
    func settleCachedTime(of node: NodePointer, _ file: UnsafeMutablePointer<OpenFile>) {
        guard node.pointee.isTimeDirty.load(ordering: .relaxed), !refuses(node.pointee.containment, .cacheWrite),
            Identity.assume(file.pointee.opener, groups: node.pointee.usesCallerGroups) == 0
        else { return }
        restoreTime(of: node, file.pointee.descriptor)
    }

    /// Before the kernel's last word of a file is taken: it has forgotten it, and may come for its attributes anew.
    func settleTime(before id: NodeID, slot: Int) {
        guard let node = tree.nodes.find(id.rawValue), node.pointee.isTimeDirty.load(ordering: .relaxed),
            coordinator.enter(ScopeID(rawValue: node.pointee.scope), for: .cacheWrite, slot: slot).isInside
        else { return }
        let descriptor = tree.pin(node)
        if descriptor >= 0, Identity.assume(writer(of: node, descriptor), groups: node.pointee.usesCallerGroups) == 0 {
            restoreTime(of: node, descriptor)
        }
        tree.unpin(id.rawValue, node)
        coordinator.leave(slot: slot)
    }
}
