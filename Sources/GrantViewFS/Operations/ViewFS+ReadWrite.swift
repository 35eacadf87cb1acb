import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    /// READ: replies with data of a file.
    @inline(__always)
    static func read(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ size: Int, _ offset: off_t, _ info: OpenFileInfo) {
        view.onFile(request, info.fh, id, for: .read) { request, file in
            let buffer = request.worker.pointee.buffer
            let count = clinux_pread(file.pointee.descriptor, buffer, min(size, Worker.bufferSize), offset)
            if count < 0 {
                request.reply(failure: count)
            } else {
                let count = min(count, Worker.bufferSize)
                request.worker.pointee.count(read: count)
                view.coordinator.count(read: count, in: ScopeID(rawValue: file.pointee.scope), slot: request.worker.pointee.slot)
                request.reply(bytes: buffer, count: count)
            }
        }
    }

    /// WRITE: writes to a file, for a program or for the kernel's write-back.
    ///
    /// `bytes`: the library's buffer, valid for the call.
    @inline(__always)
    static func write(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ bytes: UnsafeRawPointer, _ size: Int, _ offset: off_t,
        _ info: OpenFileInfo
    ) {
        let isWriteBack = info.writepage != 0
        view.onFile(request, info.fh, id, for: isWriteBack ? .cacheWrite : .write, writes: true, writeBackSize: isWriteBack ? size : nil) {
            request, file in
            // Write-back knows the position of a page. Only write(2) with O_APPEND goes to the
            // current end.
            let appends = !isWriteBack && (file.pointee.appendsOnly || (!view.policy.writeBack && info.flags & O_APPEND != 0))
            if request.killsSetID, view.hasPlainSetGID.load(ordering: .relaxed) {
                view.settleSetID(of: file.pointee.descriptor, for: request.caller)
            }
            // The kernel sends no such offset. The sums below must not overflow.
            let (_, isTooFar) = offset.addingReportingOverflow(size)
            if isTooFar || offset < 0 || size < 0 {
                request.reply(error: EFBIG)
                return
            }
            view.captureShownTime(of: file.pointee.node, file.pointee.descriptor)
            var done = 0
            var result = 0
            let writer = isWriteBack ? file.pointee.opener : request.caller
            while done < size {
                result = Identity.withReserve(of: writer) {
                    isWriteBack && file.pointee.appendsOnly
                        ? clinux_pwrite_in_place(file.pointee.descriptor, bytes + done, size - done, offset &+ done)
                        : clinux_pwrite(file.pointee.descriptor, bytes + done, size - done, offset &+ done, appends)
                }
                if result <= 0 { break }
                // A filesystem that reports more bytes than it was given would lead past the
                // buffer.
                done &+= min(result, size &- done)
            }
            view.markTimeDirty(of: file.pointee.node)
            // No close(2) will tell that this was the last write.
            if view.kernelOpens, let node = view.tree.nodes.find(id.rawValue) { view.settleCachedTime(of: node, file) }
            if done == 0, result < 0, !isWriteBack {
                request.reply(failure: result)
                return
            }
            if isWriteBack {
                let gate = view.coordinator.gate(ScopeID(rawValue: file.pointee.scope))
                view.oplocks?.wrote(file.pointee.node)
                // Also for a file that is leaving its grant.
                let isAwaited = gate.pointee.refused != .none || file.pointee.containment.load(ordering: .relaxed) != 0
                if isAwaited { gate.pointee.flushedBytes.wrappingAdd(UInt64(truncatingIfNeeded: done), ordering: .relaxed) }
                if done < size { return view.replyShortWrite(request, of: file, size, error: result < 0 ? Errno.number(of: result) : EIO) }
            }
            let node = NodeID(file.pointee.node)
            let isElsewhere = appends && !view.ends(file, at: offset &+ done)
            request.worker.pointee.count(written: done)
            view.coordinator.count(written: done, in: ScopeID(rawValue: file.pointee.scope), slot: request.worker.pointee.slot)
            request.reply(written: done)
            if isElsewhere { view.invalidateDataSoon(node) }
        }
    }

    /// Replies to write-back that the file did not accept, or only in part.
    ///
    /// The kernel takes a partial write for a complete one (fs/fuse/file.c, fuse_writepage_end).
    ///
    /// The kernel also records an error for the whole filesystem, which syncfs(2) of any process
    /// returns. That is right for a disk that fails or is full. It is wrong for a write beyond the
    /// largest offset of a file, which concerns only that file. The daemon reports such a write
    /// itself, to processes that have the file open.
    @inline(never)
    private func replyShortWrite(_ request: consuming Request, of file: UnsafeMutablePointer<OpenFile>, _ size: Int, error: Int32) {
        // If the kernel opens files by itself, the daemon does not know the openers. The kernel
        // then reports the error to close(2) and fsync(2).
        if error == EFBIG, policy.writeBack, !kernelOpens {
            lostWrites.add(file.pointee.node, in: file.pointee.scope) { tree.nodes.find($0) != nil }
            request.reply(written: size)
        } else {
            request.reply(error: error)
        }
    }

    /// The error that the daemon has to report for earlier writes to a file, or 0.
    @inline(__always)
    private func pendingWriteError(_ file: UnsafeMutablePointer<OpenFile>) -> Int32 {
        if isDropped(file, in: file.pointee.scope) { return EROFS }
        return lostWrites.isAny && lostWrites.takeError(file) ? EFBIG : 0
    }

    /// Whether the file's end after an append is where the kernel assumes it.
    private func ends(_ file: UnsafeMutablePointer<OpenFile>, at end: off_t) -> Bool {
        var status = FileStatus()
        return clinux_statx(file.pointee.descriptor, nil, &status) == 0 && status.st.st_size == end
    }

    /// Invalidates a file's data after an append.
    ///
    /// The kernel has put the data where it assumed the end of the file. If another process had
    /// appended before, its cache is wrong. Uses a thread of its own, because a request must never
    /// wait for an invalidation of data.
    @inline(never)
    private func invalidateDataSoon(_ node: NodeID) {
        guard let notifier = session?.notifier else { return }
        _ = BackgroundTask { _ = notifier.invalidateData(node) }
    }

    /// FLUSH, the close(2) of one descriptor: ends the locks of its process.
    ///
    /// Passes on errors of delayed writes from the backing filesystem. Never refused: close does
    /// not fail because a grant was revoked.
    static func flush(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo) {
        if view.kernelOpens {
            request.reply(error: ENOSYS)
            return
        }
        guard let file = view.files.acquire(info.fh) else {
            view.locks.releaseOwner(info.lock_owner, of: id)
            request.reply(error: 0)
            return
        }
        defer { view.files.drop(info.fh) }
        // Ending locks also calls the backing filesystem, so both happen inside the scope, where a
        // revoker finds a worker that is stuck.
        let worker = request.worker
        worker.pointee.isClosing.store(true, ordering: .releasing)
        defer { worker.pointee.isClosing.store(false, ordering: .releasing) }
        let slot = worker.pointee.slot
        view.settleTime(of: file, slot: slot)
        let verdict = view.coordinator.enter(ScopeID(rawValue: file.pointee.scope), for: .closing, slot: slot)
        if verdict == .congested, view.workerQuota.exceedsQuota(request, in: file.pointee.scope) {
            return view.parkForQuota(request, .closing, scope: file.pointee.scope)
        }
        guard verdict.isInside, view.refusal(by: file.pointee.containment, .closing) == nil else {
            request.reply(error: 0)
            view.locks.releaseOwner(info.lock_owner, of: id)
            if verdict.isInside { view.coordinator.leave(slot: slot) }
            return
        }
        view.locks.releaseOwner(info.lock_owner, of: id)
        let copy = file.pointee.canWrite ? dup(file.pointee.descriptor) : -1
        let result = copy < 0 ? 0 : clinux_close(copy)
        let loss = file.pointee.canWrite ? view.pendingWriteError(file) : 0
        let publication = file.pointee.canWrite ? view.publish(file.pointee.node, as: request.caller) : 0
        let error = result < 0 ? result : publication
        request.reply(error: loss != 0 ? loss : error < 0 ? Errno.number(of: error) : 0)
        view.coordinator.leave(slot: slot)
    }

    static func fsync(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, dataOnly: Bool, _ info: OpenFileInfo) {
        view.settleTime(of: info.fh, request)
        view.onFile(request, info.fh, id, for: .closing) { request, file in
            if view.kernelOpens, let node = view.tree.nodes.find(id.rawValue) { view.settleCachedTime(of: node, file) }
            let result = clinux_fsync(file.pointee.descriptor, dataOnly)
            let loss = view.pendingWriteError(file)
            reply(request, loss != 0 ? 0 &- loss : result)
        }
    }
}
