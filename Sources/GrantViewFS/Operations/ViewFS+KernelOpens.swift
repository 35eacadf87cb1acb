import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Operations by node, for kernels that send no OPEN (docs/decisions/caching.md).
extension ViewFS {
    /// Does the same as `onFile`, by the file's node. `writes`: needs the file open for writing.
    ///
    /// Always inlined, because a separate function would retain what `body` captures.
    @inline(__always)
    func onCachedFile(
        _ request: consuming Request, _ id: NodeID, for entry: Entry, writes: Bool, writeBackSize: Int? = nil,
        _ body: (consuming Request, UnsafeMutablePointer<OpenFile>) -> Void
    ) {
        guard let node = tree.nodes.find(id.rawValue), node.pointee.type == S_IFREG else {
            request.reply(error: id.isVirtual ? EISDIR : ESTALE)
            return
        }
        // Before the gate: a revoker that comes afterwards knows what to invalidate.
        markMayHavePages(node)
        let slot = request.worker.pointee.slot
        let scope = ScopeID(rawValue: node.pointee.scope)
        var verdict = coordinator.enter(scope, for: entry, slot: slot)
        if verdict.isInside,
            let refusal = writeBackSize == nil ? refusal(of: id, node, for: entry) : refusal(by: node.pointee.containment, entry)
        {
            verdict = leave(request, refusal, of: id.rawValue)
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
        if writeBackSize == nil { lastCalls.record(request.caller.pid, in: scope.rawValue) }
        let descriptor = tree.pin(node)
        node.pointee.beginUse()
        // Write-back has no caller: it acts as the last writer.
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

    /// Does the same as `onDirectory`, by the directory's node.
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

    /// The user for write-back: the last caller that requested a write.
    ///
    /// Without one it is the file's owner, which has stored into a mapping or could have.
    private func writer(of node: NodePointer, _ descriptor: Int32) -> Caller {
        if let writer = node.pointee.writer { return Caller(uid: writer.user, gid: writer.group, pid: writer.process, umask: 0) }
        var status = FileStatus()
        guard descriptor >= 0, clinux_statx(descriptor, nil, &status) == 0 else { return Caller(uid: 0, gid: 0, pid: 0, umask: 0) }
        return Caller(uid: status.st.st_uid, gid: status.st.st_gid, pid: 0, umask: 0)
    }

    /// GETXATTR of `security.capability`: the kernel's probe, by which opens for writing are
    /// checked.
    ///
    /// The kernel sends it before the first write(2) into its cache since it got the file's
    /// attributes (fs/inode.c, file_remove_privs). It also sends it each time the last reply
    /// reported capabilities. A refusal reports capabilities, so the kernel removes them and gets
    /// the error then (`writeRefusal`). An error here would count as no capabilities, and the write
    /// would succeed.
    ///
    /// Programs get no value in either case: they request the value in a second call.
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
        if view.refusal(of: id, node, for: .write) != nil {
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

    /// The error of a write that `probeWritable` refused.
    ///
    /// EPERM if the write would be allowed by now, as for programs that remove the attribute.
    func writeRefusal(_ caller: Caller, _ id: NodeID, _ node: NodePointer) -> Int32 {
        let error = openForWriting(caller, id, node)
        return error < 0 ? error : -EPERM
    }

    /// Checks whether a file can be opened for writing, or opens it.
    ///
    /// It is opened if the answer may change. Called inside the file's scope. Returns 0 or a
    /// negative error number.
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
        // A local file is opened only when it is written: meanwhile the host could not execute it
        // (ETXTBSY), and many programs only probe.
        if node.pointee.usesCallerGroups { return cachedFile(id.rawValue, node, descriptor, forWriting: true, as: caller).error }
        let error = clinux_may_write(descriptor)
        // It was opened while that was possible. Immutability binds existing descriptors as well
        // (EPERM).
        return error == -EACCES && node.pointee.cachedOpens.writer != 0 ? 0 : error
    }

    /// Opens a file that programs may have open, before a change that could prevent it.
    ///
    /// Such a change makes the file harder to open, or removes its name from a server that needs
    /// it.
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

    /// Whether the kernel may have dirty pages of a file, or get some.
    func mayBeDirty(_ node: NodePointer) -> Bool {
        kernelOpens ? node.pointee.mayHavePages.load(ordering: .sequentiallyConsistent) : node.pointee.writers.load(ordering: .relaxed) > 0
    }

    func mayBeDirty(_ id: UInt64) -> Bool { tree.nodes.find(id).map { $0.pointee.type == S_IFREG && mayBeDirty($0) } ?? false }

    /// Sets a cached file's mtime to the mtime that the kernel shows, as `settleTime`.
    ///
    /// Called inside the file's scope.
    func settleCachedTime(of node: NodePointer, _ file: UnsafeMutablePointer<OpenFile>) {
        guard node.pointee.isTimeDirty.load(ordering: .relaxed), refusal(by: node.pointee.containment, .cacheWrite) == nil,
            Identity.assume(file.pointee.opener, groups: node.pointee.usesCallerGroups) == 0
        else { return }
        restoreTime(of: node, file.pointee.descriptor)
    }

    /// Restores the mtime that the kernel showed, before its last FORGET is applied.
    ///
    /// The kernel has dropped the inode and may request the attributes again. Enters the scope by
    /// itself, so the caller must be outside of it.
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
