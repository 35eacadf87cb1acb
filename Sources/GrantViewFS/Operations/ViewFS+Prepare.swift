import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

typealias NodePointer = UnsafeMutablePointer<Node>

// Prepares every operation: finds the node or file, enters its scope, acts as the caller.
extension ViewFS {
    /// Runs `body` inside the node's scope, or replies with the refusal.
    ///
    /// The node's O_PATH descriptor is pinned meanwhile. `killing`: the change clears the file's
    /// set-id bits. `name`, `other`, `file`: what a claim may cover besides the node.
    @inline(__always)
    func onNode(
        _ request: consuming Request, _ id: NodeID, for entry: Entry, killing: Bool = false, name: UnsafePointer<CChar>? = nil,
        other: (parent: NodeID, name: UnsafePointer<CChar>)? = nil, file handle: UInt64? = nil, isLookup: Bool = false,
        _ body: (consuming Request, NodePointer, Int32) -> Void
    ) {
        guard let node = tree.nodes.find(id.rawValue) else {
            request.reply(error: id.isVirtual ? EACCES : ESTALE)
            return
        }
        let slot = request.worker.pointee.slot
        var verdict = coordinator.enter(ScopeID(rawValue: node.pointee.scope), for: entry, slot: slot)
        if verdict.isInside, let refusal = refusal(of: id, node, for: entry) { verdict = leave(request, refusal, of: id.rawValue) }
        if verdict != .enter {
            guard verdict.isInside else {
                // Times that the kernel writes back: see `setattr`.
                if entry == .cacheWrite, handle != nil { return swallowCachedTimes(request, id) }
                return refuse(request, verdict, scope: node.pointee.scope)
            }
            if verdict == .congested, workerQuota.exceedsQuota(request, in: node.pointee.scope) {
                return parkForQuota(request, entry, scope: node.pointee.scope)
            }
            if isClaimed(verdict, entry, node.pointee.scope),
                let hold = blocker(request.caller, id, node, entry, Names(first: name, second: other, isLookup: isLookup), file: handle)
            {
                return parkForClaim(request, for: hold, scope: node.pointee.scope, node: id.rawValue)
            }
        }
        lastCalls.record(request.caller.pid, in: node.pointee.scope)
        if let name, DocumentPlace.isWorkplace(name) || (other.map { DocumentPlace.isWorkplace($0.name) } ?? false) {
            request.reply(error: isLookup ? ENOENT : EACCES)
            coordinator.leave(slot: slot)
            return
        }
        let identity = Identity.assume(request.caller, groups: node.pointee.usesCallerGroups)
        if entry.isChange { Identity.keepSetID(!killing) }
        if identity != 0 {
            request.reply(error: identity)
        } else {
            let descriptor = tree.pin(node)
            if descriptor < 0 {
                request.reply(failure: descriptor)
            } else {
                body(request, node, descriptor)
            }
            tree.unpin(id.rawValue, node)
        }
        coordinator.leave(slot: slot)
    }

    /// Runs `body` inside the scope of an open file, or replies with the refusal.
    ///
    /// The file stays open meanwhile. `id`: the file's node. `writes`: needs it open for writing,
    /// if the kernel opens files by itself. `writeBackSize`: the number of bytes if the kernel
    /// writes them back, see `drop`.
    @inline(__always)
    func onFile(
        _ request: consuming Request, _ handle: UInt64, _ id: NodeID, for entry: Entry, writes: Bool = false, writeBackSize: Int? = nil,
        _ body: (consuming Request, UnsafeMutablePointer<OpenFile>) -> Void
    ) {
        if kernelOpens { return onCachedFile(request, id, for: entry, writes: writes, writeBackSize: writeBackSize, body) }
        guard let file = files.acquire(handle) else {
            request.reply(error: EBADF)
            return
        }
        let slot = request.worker.pointee.slot
        var verdict = coordinator.enter(ScopeID(rawValue: file.pointee.scope), for: entry, slot: slot)
        if verdict.isInside, let refusal = refusal(by: file.pointee.containment, entry) {
            verdict = leave(request, refusal, of: file.pointee.node)
        }
        let isOverQuota = verdict == .congested && workerQuota.exceedsQuota(request, in: file.pointee.scope)
        let hold = !isOverQuota && isClaimed(verdict, entry, file.pointee.scope) ? blocker(request.caller, file, entry) : nil
        if isOverQuota {
            parkForQuota(request, entry, scope: file.pointee.scope)
        } else if let hold {
            parkForClaim(request, for: hold, scope: file.pointee.scope, node: file.pointee.node)
        } else if verdict.isInside {
            if writeBackSize == nil { lastCalls.record(request.caller.pid, in: file.pointee.scope) }
            // Write-back has no caller: it acts as the opener.
            let identity = Identity.assume(writeBackSize == nil ? request.caller : file.pointee.opener)
            if entry.isChange { Identity.keepSetID(!request.killsSetID) }
            if identity == 0 { body(request, file) } else { request.reply(error: identity) }
            coordinator.leave(slot: slot)
        } else if let writeBackSize {
            drop(request, writeBackSize, of: file.pointee.node, in: file.pointee.scope, verdict)
        } else {
            refuse(request, verdict, scope: file.pointee.scope, readOf: entry == .read ? file.pointee.node : 0)
        }
        files.drop(handle)
    }

    /// Does the same as `onFile` for an open directory.
    func onDirectory(
        _ request: consuming Request, _ handle: UInt64, _ id: NodeID, for entry: Entry = .read,
        _ body: (consuming Request, UnsafeMutablePointer<OpenDirectory>) -> Void
    ) {
        if kernelOpens { return onCachedDirectory(request, id, for: entry, body) }
        guard let directory = directories.acquire(handle) else {
            request.reply(error: EBADF)
            return
        }
        let slot = request.worker.pointee.slot
        var verdict = coordinator.enter(ScopeID(rawValue: directory.pointee.scope), for: entry, slot: slot)
        if verdict.isInside, let refusal = refusal(by: directory.pointee.containment, entry) {
            verdict = leave(request, refusal, of: directory.pointee.node)
        }
        let isOverQuota = verdict == .congested && workerQuota.exceedsQuota(request, in: directory.pointee.scope)
        let hold = !isOverQuota && isClaimed(verdict, entry, directory.pointee.scope) ? blocker(request.caller, directory, entry) : nil
        if isOverQuota {
            parkForQuota(request, entry, scope: directory.pointee.scope)
        } else if let hold {
            parkForClaim(request, for: hold, scope: directory.pointee.scope, node: directory.pointee.node)
        } else if verdict.isInside {
            lastCalls.record(request.caller.pid, in: directory.pointee.scope)
            let node = tree.nodes.find(directory.pointee.node)
            let identity = Identity.assume(request.caller, groups: node?.pointee.usesCallerGroups ?? false)
            if identity == 0 { body(request, directory) } else { request.reply(error: identity) }
            coordinator.leave(slot: slot)
        } else {
            refuse(request, verdict, scope: directory.pointee.scope)
        }
        directories.drop(handle)
    }

    /// Leaves the scope and parks the request until a claim ends.
    @inline(never)
    func parkForClaim(_ request: consuming Request, for hold: UInt64, scope: UInt32, node: UInt64) {
        let call = pendingCall(request, node, scope: scope)
        coordinator.leave(slot: request.worker.pointee.slot)
        waiting.wait(request, for: hold, scope: scope, node: node, call)
    }

    /// Leaves the scope again, because the operation's object is no longer in it, or is protected.
    @inline(never)
    func leave(_ request: borrowing Request, _ refusal: Verdict, of node: UInt64) -> Verdict {
        if refusal == .readOnly { countRefusal(of: node, for: request.caller) }
        coordinator.leave(slot: request.worker.pointee.slot)
        return refusal
    }

    /// Whether an operation that entered with this verdict must check the claims.
    @inline(__always)
    func isClaimed(_ verdict: Verdict, _ entry: Entry, _ scope: UInt32) -> Bool {
        verdict == .claimed
            || (verdict == .congested && (entry == .read || entry == .write)
                && coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.contains(.claimed))
    }

    /// Leaves the scope and parks the request until the scope is less congested.
    ///
    /// A close(2) is never refused.
    @inline(never)
    func parkForQuota(_ request: consuming Request, _ entry: Entry, scope: UInt32) {
        // Without the file's path, because determining it may call a filesystem that hangs.
        let call =
            audit == nil
            ? nil : audit?.call(request).map { AuditTrail.PendingCall(call: $0, caller: request.caller, scope: scope, path: nil) }
        let refusal = entry == .cacheWrite ? nil : request.worker.pointee.isClosing.load(ordering: .relaxed) ? 0 : EACCES
        coordinator.leave(slot: request.worker.pointee.slot)
        workerQuota.wait(request, in: scope, refusal: refusal, call)
    }

    /// Refuses a request: counts and records it, and replies with the error for the verdict.
    ///
    /// `node`: the node whose data is requested. 0 if the request is not about data.
    func refuse(_ request: consuming Request, _ verdict: Verdict, scope: UInt32, readOf node: UInt64 = 0) {
        if verdict == .revoked, coordinator.isOffered(ScopeID(rawValue: scope)) { return meetOffer(request, scope) }
        countDenial(request.caller, in: scope)
        // It installs nothing, but pages stay locked until it is processed.
        lastCalls.record(request.caller.pid, in: scope)
        starvedThreads.begin(request.caller.pid)
        let error = verdict == .readOnly ? EROFS : EACCES
        if audit != nil { recordRefusal(request, scope: scope, error: error) }
        if node != 0, error == EACCES { return refusedReadThrottle.refuse(request, node: node, scope: scope) }
        request.reply(error: error)
    }
}

extension OpenFile {
    /// The user with whose rights write-back acts.
    var opener: Caller { Caller(uid: uid, gid: gid, pid: pid, umask: 0) }
}

/// Replies to an operation without a result. `result`: a negative error number, or success.
@inline(__always)
func reply(_ request: consuming Request, _ result: Int32) {
    request.reply(error: result < 0 ? Errno.number(of: result) : 0)
}
