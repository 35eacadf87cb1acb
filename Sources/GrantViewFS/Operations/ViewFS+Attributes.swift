import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    /// GETATTR: replies with a node's attributes.
    ///
    /// `handle`: the open file through which they are requested, if any.
    static func getattr(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, file handle: UInt64?) {
        if id.isVirtual { return view.replyVirtualAttributes(request, id) }
        view.onNode(request, id, for: .read, file: handle) { request, node, descriptor in
            view.replyAttributes(request, node, descriptor)
        }
    }

    /// Replies with attributes. `mayCache`: false if the kernel must ask for them again.
    @inline(__always)
    func replyAttributes(_ request: consuming Request, _ node: NodePointer, _ descriptor: Int32, mayCache: Bool = true) {
        var status = FileStatus()
        let result = clinux_statx(descriptor, nil, &status)
        if result < 0 {
            request.reply(failure: result)
            return
        }
        // Only the granted directory has no parent.
        if node.pointee.parent.load(ordering: .relaxed) == 0 { cacheRootStatus(status, node) }
        var attributes = attributes(status)
        let timeout = node.pointee.bypassesCache || !mayCache ? 0 : attributeTimeout(of: node, attributes.st_mode)
        if request.wantsBirth {
            let birth = status.has_birth ? Birth(seconds: status.birth_seconds, nanoseconds: status.birth_nanoseconds) : nil
            request.reply(attributes: attributes, birth: birth, timeout: timeout)
        } else {
            request.reply(attributes: &attributes, timeout: timeout)
        }
    }

    /// Stores a granted directory's attributes for the next lookup of its name.
    ///
    /// The kernel would take older times for a change.
    @inline(never)
    private func cacheRootStatus(_ status: FileStatus, _ node: NodePointer) {
        node.pointee.withOwner { owner in
            guard owner.root?.key == node.pointee.key else { return }
            owner.rootStatus.withLock { $0 = status }
        }
    }

    /// SETATTR: carries out chmod, chown, truncate and utimens.
    ///
    /// `changes` (FUSE_SET_ATTR_*) names the changes. Their order is chosen so that no step
    /// prevents a later one.
    static func setattr(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ attributes: UnsafePointer<stat>, _ changes: AttributeChanges,
        file handle: UInt64?
    ) {
        if id.isVirtual {
            request.reply(error: EACCES)
            return
        }
        // The kernel sets the flag on every change of owner. On a truncation it marks callers that
        // lose the bits.
        let kills = request.killsSetID && changes.contains(.size)
        // Write-back of an earlier, admitted change does not wait for claims.
        let isWriteBack = view.policy.writeBack && changes == .cachedTimes
        if isWriteBack, handle == nil, view.isBeingWithdrawn(id) { return view.swallowCachedTimes(request, id) }
        view.onNode(
            request, id, for: isWriteBack ? .cacheWrite : .write, killing: kills, file: isWriteBack ? handle : nil
        ) { request, node, descriptor in
            // The directory's mode keeps other users of the host out.
            if view.document(of: id, node) != nil {
                request.reply(error: EACCES)
                return
            }
            view.lastCalls.record(request.caller.pid, in: node.pointee.scope, installs: true)
            if changes.changesOwner || (kills && view.hasPlainSetGID.load(ordering: .relaxed)) {
                view.settleSetID(of: descriptor, for: request.caller)
            }
            if view.kernelOpens, changes.changesOwner || changes.contains(.mode) { view.openBeforeChange(id, node, as: request.caller) }
            if changes.contains(.mode) { view.recordMode(attributes.pointee.st_mode) }
            // A recorded change must be carried out, so it must not wait for a lease after it was
            // recorded.
            let writer = view.audit != nil && handle == nil && changes.contains(.size) ? view.opensForWriting(descriptor, node) : -1
            defer { if writer >= 0 { _ = clinux_close(writer) } }
            let resizes = view.policy.writeBack && changes.contains(.size)
            if resizes { view.captureShownTime(of: id.rawValue, descriptor) }
            let result =
                writer == ViewFS.leaseInTheWay
                ? writer
                : view.audited(request, node, .file(descriptor), detail: changes.description(attributes)) {
                    changes.namesNothing
                        ? view.touchOwner(
                            of: descriptor, for: request.caller,
                            mayPrecedeWrite: !changes.contains(.changeTime) && view.mayBeDirty(node))
                        : Identity.withReserve(of: request.caller) {
                            view.apply(changes, attributes, to: node, descriptor, file: handle, as: request.caller, isKernels: isWriteBack)
                        }
                }
            if result == ViewFS.leaseInTheWay {
                let call = view.pendingCall(of: descriptor, request, scope: node.pointee.scope)
                view.leases.wait(request, in: node.pointee.scope, call)
                return
            }
            // The kernel reports and shows no new time if the size is unchanged. The file itself
            // may get one.
            if resizes { view.restoreTime(of: node, descriptor) }
            if changes.contains(.size) { view.lengthenings.settle(id.rawValue) }
            // The kernel's own times for a file that accepts none (FS_APPEND_FL) or has another
            // owner: the file keeps those of its last write.
            let isOwnTime = isWriteBack && result == -EPERM && view.mayBeTimeOfWrite(attributes.pointee.st_mtim, node, descriptor)
            if result < 0, !isOwnTime {
                request.reply(failure: result)
            } else {
                let mayCache = LastCalls.canWatch(request.caller)
                view.replyAttributes(request, node, descriptor, mayCache: mayCache)
            }
        }
    }

    /// Handles a SETATTR that names no change.
    ///
    /// Two callers send it:
    /// - chown(2) without owner and group. It clears set-id bits for the owner, and fails with
    ///   EPERM for other users if there are such bits.
    /// - The kernel, before any process writes to a file with set-id bits (fs/attr.c,
    ///   __remove_privs). Its next request clears the bits.
    ///
    /// So it runs with the caller's rights to other users' files, and what they forbid is skipped.
    /// This request alone never clears bits for a caller that may not clear them.
    ///
    /// `mayPrecedeWrite`: whether it can be the second case. It is false if no process has the file
    /// open for writing. It is also false with a ctime, which only chown(2) sets (fs/open.c,
    /// chown_common) and which the kernel sends only under write-back.
    private func touchOwner(of descriptor: Int32, for caller: Caller, mayPrecedeWrite: Bool) -> Int32 {
        let changed = Identity.asOwner(caller, has: { rights(of: caller, over: descriptor) }) {
            clinux_chown_descriptor(descriptor, .max, .max)
        }
        return changed == -EPERM && mayPrecedeWrite ? 0 : changed
    }

    /// Whether a withdrawal is flushing this node's scope.
    ///
    /// With write-back the kernel keeps times. It sends them on close or sync, by a request that
    /// looks like utimensat(2) of the mtime alone (fs/fuse/inode.c, fuse_write_inode). The request
    /// names a file open for writing, if there is one.
    ///
    /// Refusing it would make close(2) fail, and syncfs(2) for holders of other grants. So it
    /// succeeds without a change. For a file that is not open the kernel sends it during rename or
    /// link. During a withdrawal such a request can have either origin, later only utimensat.
    private func isBeingWithdrawn(_ id: NodeID) -> Bool {
        guard let node = tree.nodes.find(id.rawValue) else { return false }
        return coordinator.gate(ScopeID(rawValue: node.pointee.scope)).pointee.refused.subtracting(.claimed) == .flushing
    }

    /// Replies to cached times that are discarded.
    func swallowCachedTimes(_ request: consuming Request, _ id: NodeID) {
        var nothing = stat()
        nothing.st_mode = tree.nodes.find(id.rawValue)?.pointee.type ?? S_IFREG
        request.reply(attributes: &nothing, timeout: 0)
    }

    /// Carries out changes.
    ///
    /// `isKernels`: whether the kernel set the times, for writes of any process. Those of a
    /// truncation are the kernel's as well.
    private func apply(
        _ changes: AttributeChanges, _ wanted: UnsafePointer<stat>, to node: NodePointer, _ descriptor: Int32, file handle: UInt64?,
        as caller: Caller, isKernels: Bool
    ) -> Int32 {
        // First, because it can fail for size or space. Set-id bits that the request clears must
        // then stay.
        if changes.contains(.size) {
            let result = truncate(node, descriptor, to: wanted.pointee.st_size, file: handle)
            if result < 0 { return result }
        }
        if !changes.isDisjoint(with: [.user, .group]) {
            let user = changes.contains(.user) ? wanted.pointee.st_uid : uid_t.max
            let group = changes.contains(.group) ? wanted.pointee.st_gid : gid_t.max
            let result = Identity.asOwner(caller, has: { rights(of: caller, over: descriptor) }, groups: true) {
                clinux_chown_descriptor(descriptor, user, group)
            }
            if result < 0 { return result }
        }
        // After the owner: chown clears set-id bits, and the requested mode says which remain.
        if changes.contains(.mode) {
            let result = changeMode(of: descriptor, to: wanted.pointee.st_mode & 0o7777, as: caller)
            if result < 0 { return result }
        }
        if !changes.isDisjoint(with: [.accessTime, .modificationTime, .accessTimeNow, .modificationTimeNow]) {
            var times = (timespec(tv_sec: 0, tv_nsec: utimeOmit), timespec(tv_sec: 0, tv_nsec: utimeOmit))
            if changes.contains(.accessTimeNow) {
                times.0.tv_nsec = utimeNow
            } else if changes.contains(.accessTime) {
                times.0 = wanted.pointee.st_atim
            }
            if changes.contains(.modificationTimeNow) {
                times.1.tv_nsec = utimeNow
            } else if changes.contains(.modificationTime) {
                times.1 = wanted.pointee.st_mtim
                setShownTime(wanted.pointee.st_mtim, of: node)
            }
            if isKernels || changes.contains(.size) { return Identity.asAnyOwner { set(times, of: descriptor) } }
            return setTimes(times, of: descriptor, as: caller)
        }
        return 0
    }

    /// Sets times as `caller` can.
    ///
    /// Write permission suffices to set both to the present time. With write-back the kernel sends
    /// the present mtime as a value.
    private func setTimes(_ times: (timespec, timespec), of descriptor: Int32, as caller: Caller) -> Int32 {
        if times.0.tv_nsec == utimeNow, times.1.tv_nsec == utimeNow { return touch(descriptor, as: caller) }
        let result = Identity.asOwner(caller, has: { rights(of: caller, over: descriptor) }) { set(times, of: descriptor) }
        guard result == -EPERM, policy.writeBack, times.0.tv_nsec == utimeNow, times.1.tv_nsec != utimeOmit else { return result }
        let touched = touch(descriptor, as: caller)
        return touched < 0 ? touched : Identity.asAnyOwner { set(times, of: descriptor) }
    }

    private func touch(_ descriptor: Int32, as caller: Caller) -> Int32 {
        let now = timespec(tv_sec: 0, tv_nsec: utimeNow)
        if isOwner(caller, of: descriptor) { return set((now, now), of: descriptor) }
        return Identity.asWriter(caller, has: { rights(of: caller, over: descriptor) }) { set((now, now), of: descriptor) }
    }

    /// False if the file has been given away since the kernel in front has checked the caller.
    func isOwner(_ caller: Caller, of descriptor: Int32) -> Bool {
        var status = FileStatus()
        return clinux_statx(descriptor, nil, &status) == 0 && status.st.st_uid == caller.uid
    }

    private func set(_ times: (timespec, timespec), of descriptor: Int32) -> Int32 {
        withUnsafePointer(to: times) {
            $0.withMemoryRebound(to: timespec.self, capacity: 2) { clinux_utimens_descriptor(descriptor, $0) }
        }
    }

    /// The rights to other users' files that `caller` has over this one.
    func rights(of caller: Caller, over descriptor: Int32) -> Identity.FileRights {
        var status = FileStatus()
        return clinux_statx(descriptor, nil, &status) == 0 ? caller.rights(overFileOf: status.st.st_uid, status.st.st_gid) : []
    }

    /// Whether the kernel may have set this modification time itself, for a write.
    ///
    /// The kernel sends that time after the data, within `longestWriteBack`. A program's own change
    /// arrives in the same form.
    private func mayBeTimeOfWrite(_ time: timespec, _ node: NodePointer, _ descriptor: Int32) -> Bool {
        var status = FileStatus()
        guard mayBeDirty(node), clinux_statx(descriptor, nil, &status) == 0 else { return false }
        let changed = status.st.st_ctim
        let isEarlier = (time.tv_sec, time.tv_nsec) <= (changed.tv_sec, changed.tv_nsec)
        return isEarlier && time.tv_sec > changed.tv_sec - Self.longestWriteBack
    }

    /// Seconds.
    private static let longestWriteBack = 3_600

    /// Truncates a file, through the caller's descriptor if there is one.
    ///
    /// A descriptor may write although the mode no longer allows it. Without a descriptor and to
    /// size 0, the request is open(2) with O_TRUNC (fs/fuse/dir.c, fuse_do_setattr). That changes
    /// the times of an empty file too, which truncate(2) need not do.
    private func truncate(_ node: NodePointer, _ descriptor: Int32, to size: off_t, file handle: UInt64?) -> Int32 {
        if let handle, let file = files.acquire(handle) {
            defer { files.drop(handle) }
            return clinux_ftruncate(file.pointee.descriptor, size)
        }
        if kernelOpens, handle != nil {
            node.pointee.beginUse()
            defer { node.pointee.endUse() }
            if let file = files.find(node.pointee.cachedOpens.writer), !file.pointee.appendsOnly {
                return clinux_ftruncate(file.pointee.descriptor, size)
            }
        }
        let opened = tree.evictingIfNeeded { clinux_reopen(descriptor, O_WRONLY | O_NONBLOCK | (size == 0 ? O_TRUNC : 0)) }
        if opened < 0 { return isLease(opened, node) ? Self.leaseInTheWay : opened }
        // While the file is open for writing, no process gets a lease that truncate(2) would wait
        // for.
        let result = size == 0 ? 0 : clinux_truncate_descriptor(descriptor, size)
        let closed = clinux_close(opened)
        return result < 0 ? result : closed
    }

    /// Opens a file for writing, which keeps leases away.
    ///
    /// Returns a descriptor, `leaseInTheWay` or another negative number. The truncation reports the
    /// latter itself.
    private func opensForWriting(_ descriptor: Int32, _ node: NodePointer) -> Int32 {
        let opened = tree.evictingIfNeeded { clinux_reopen(descriptor, O_WRONLY | O_NONBLOCK) }
        return isLease(opened, node) ? Self.leaseInTheWay : opened
    }

    static func statfs(_ view: ViewFS, _ request: consuming Request, _ id: NodeID) {
        if id.isVirtual { return view.replyFilesystem(ofVirtual: id, request) }
        view.onNode(request, id, for: .closing) { request, _, descriptor in
            if view.trap != .none { view.trapAsTold() }
            var answer = statvfs()
            let result = clinux_fstatvfs(descriptor, &answer)
            if result < 0 { request.reply(failure: result) } else { request.reply(filesystem: &answer) }
        }
    }

    @inline(never)
    private func trapAsTold() {
        if trap == .free { fatalError("told to trap") }
        locks.whileLocked { fatalError("told to trap with a lock held") }
    }

    /// ACCESS: succeeds inside an open scope.
    ///
    /// With `default_permissions` the kernel checks permissions itself and sends no such request.
    static func access(_ view: ViewFS, _ request: consuming Request, _ id: NodeID) {
        if id.isVirtual {
            request.reply(error: 0)
            return
        }
        view.onNode(request, id, for: .read) { request, _, _ in request.reply(error: 0) }
    }
}

// Macros with casts in <linux/stat.h>, which Swift does not import.
private let utimeNow = (1 << 30) - 1
private let utimeOmit = (1 << 30) - 2

/// The changes of a SETATTR request: FUSE_SET_ATTR_*.
struct AttributeChanges: OptionSet {
    let rawValue: Int32
    static let mode = AttributeChanges(rawValue: 1 << 0)
    static let user = AttributeChanges(rawValue: 1 << 1)
    static let group = AttributeChanges(rawValue: 1 << 2)
    static let size = AttributeChanges(rawValue: 1 << 3)
    static let accessTime = AttributeChanges(rawValue: 1 << 4)
    static let modificationTime = AttributeChanges(rawValue: 1 << 5)
    static let accessTimeNow = AttributeChanges(rawValue: 1 << 7)
    static let modificationTimeNow = AttributeChanges(rawValue: 1 << 8)
    static let changeTime = AttributeChanges(rawValue: 1 << 10)
    /// Whether the request names no change, see `touchOwner`. Under write-back the kernel adds a
    /// ctime.
    var namesNothing: Bool {
        isDisjoint(with: [.mode, .user, .group, .size, .accessTime, .modificationTime, .accessTimeNow, .modificationTimeNow])
    }
    var changesOwner: Bool { namesNothing || !isDisjoint(with: [.user, .group]) }
    /// A description of the new values for people.
    func description(_ wanted: UnsafePointer<stat>) -> String {
        var parts: [String] = []
        if contains(.size) { parts.append("to \(wanted.pointee.st_size) bytes") }
        if contains(.user) { parts.append("uid \(wanted.pointee.st_uid)") }
        if contains(.group) { parts.append("gid \(wanted.pointee.st_gid)") }
        if namesNothing { parts.append("to nobody else") }
        if contains(.mode) { parts.append("mode " + String(wanted.pointee.st_mode & 0o7777, radix: 8)) }
        return parts.joined(separator: ", ")
    }

    /// The changes that the kernel sends for cached times (fs/fuse/dir.c, fuse_flush_times).
    static let cachedTimes: AttributeChanges = [.modificationTime, .changeTime]
}
