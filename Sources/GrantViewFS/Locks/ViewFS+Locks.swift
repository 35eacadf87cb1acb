import CGrantSystem
import GrantCoordinator
import GrantFUSE
import GrantLocks
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    static func setlk(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo, _ lock: LockRange, wait: Bool
    ) {
        // The kernel sends no other values. See `LockedRange`.
        if lock.l_start < 0 || lock.l_len < 0 {
            request.reply(error: EINVAL)
            return
        }
        if lock.l_type == Int16(truncatingIfNeeded: F_UNLCK) {
            view.unlock(request, info.fh, id) {
                guard let description = view.locks.existingDescription(info.lock_owner, of: id.rawValue) else { return nil }
                return .range(
                    description,
                    LockedRange(
                        start: Int64(truncatingIfNeeded: lock.l_start), length: Int64(truncatingIfNeeded: lock.l_len), isExclusive: true))
            }
            return
        }
        view.onFile(request, info.fh, id, for: .closing) { request, file in
            let flags = file.pointee.flags & O_ACCMODE
            view.probeOplock(locking: file, id.rawValue, whole: false)
            let found = view.locks.description(
                info.lock_owner, of: id.rawValue, in: ScopeID(rawValue: file.pointee.scope), handle: info.fh, pid: lock.l_pid,
                uid: request.caller.uid
            ) {
                view.tree.share(scope: file.pointee.scope, user: request.caller.uid)
            } open: {
                // For both kinds of lock if possible: the owner may have the file open in another
                // way too. The kernel has checked the lock against its own descriptor.
                if let node = view.tree.nodes.find(id.rawValue) {
                    _ = Identity.assume(request.caller, groups: node.pointee.usesCallerGroups)
                }
                let more = file.pointee.appendsOnly ? O_NONBLOCK | O_APPEND : O_NONBLOCK
                let both = view.tree.evictingIfNeeded { clinux_reopen(file.pointee.descriptor, O_RDWR | more) }
                return both >= 0 ? both : view.tree.evictingIfNeeded { clinux_reopen(file.pointee.descriptor, flags | more) }
            }
            switch found {
            case .failure(let error): request.reply(error: error.rawValue)
            case .success(let description):
                let range = LockedRange(
                    start: Int64(truncatingIfNeeded: lock.l_start), length: Int64(truncatingIfNeeded: lock.l_len),
                    isExclusive: lock.l_type == Int16(truncatingIfNeeded: F_WRLCK))
                let lockRequest = LockRequest.range(description, range)
                view.take(lockRequest, request, ScopeID(rawValue: file.pointee.scope), id, wait: wait)
            }
        }
    }

    static func getlk(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo, _ lock: LockRange) {
        view.onFile(request, info.fh, id, for: .closing) { request, file in
            let own = view.locks.existingDescription(info.lock_owner, of: id.rawValue)
            // Through the owner's own description its own locks do not conflict. The open file has
            // no locks, and opening it again could wait for a lease of another process.
            let descriptor = dup(own?.descriptor ?? file.pointee.descriptor)
            if descriptor < 0 {
                request.reply(error: ENOLCK)
                return
            }
            var type = lock.l_type
            var (start, length, pid): (Int64, Int64, pid_t) = (
                Int64(truncatingIfNeeded: lock.l_start), Int64(truncatingIfNeeded: lock.l_len), 0
            )
            let result = clinux_ofd_get_lock(descriptor, &type, &start, &length, &pid)
            // A duplicate shares its description, so closing it ends no lock.
            _ = clinux_close(descriptor)
            if result < 0 {
                request.reply(failure: result)
                return
            }
            // The system knows no process for a lock that the daemon holds.
            if pid == -1, type != Int16(truncatingIfNeeded: F_UNLCK) {
                let isExclusive = type == Int16(truncatingIfNeeded: F_WRLCK)
                pid = view.locks.holder(of: start, isExclusive: isExclusive, on: id.rawValue, besides: info.lock_owner) ?? -1
            }
            var answer = LockRange()
            answer.l_type = type
            answer.l_whence = Int16(truncatingIfNeeded: SEEK_SET)
            answer.l_start = off_t(truncatingIfNeeded: start)
            answer.l_len = off_t(truncatingIfNeeded: length)
            answer.l_pid = pid
            request.reply(lock: &answer)
        }
    }

    /// FLOCK: the lock belongs to the open file, and the daemon has one description for each.
    static func flock(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo, _ operation: Int32) {
        if operation & LOCK_UN != 0 {
            view.unlock(request, info.fh, id) { .whole(file: info.fh, operation: LOCK_UN) }
            return
        }
        view.onFile(request, info.fh, id, for: .closing) { request, file in
            view.probeOplock(locking: file, id.rawValue, whole: true)
            let lockRequest = LockRequest.whole(file: info.fh, operation: operation | LOCK_NB)
            view.take(lockRequest, request, ScopeID(rawValue: file.pointee.scope), id, wait: operation & LOCK_NB == 0)
        }
    }

    /// Ends the lock of `lockRequest`. Returns nil if there is none.
    ///
    /// Never refused: below a withdrawn grant locks have ended already, or end with it. It runs
    /// inside the scope, so that a revoker finds and answers a stuck request.
    private func unlock(_ request: consuming Request, _ handle: UInt64, _ id: NodeID, _ lockRequest: () -> LockRequest?) {
        guard let file = files.acquire(handle) else {
            request.reply(error: 0)
            return
        }
        defer { files.drop(handle) }
        let worker = request.worker
        worker.pointee.isClosing.store(true, ordering: .releasing)
        defer { worker.pointee.isClosing.store(false, ordering: .releasing) }
        let slot = worker.pointee.slot
        let scope = ScopeID(rawValue: file.pointee.scope)
        let verdict = coordinator.enter(scope, for: .closing, slot: slot)
        if verdict == .congested, workerQuota.exceedsQuota(request, in: scope.rawValue) {
            return parkForQuota(request, .closing, scope: scope.rawValue)
        }
        guard verdict.isInside else {
            request.reply(error: 0)
            return
        }
        defer { coordinator.leave(slot: slot) }
        guard let lockRequest = lockRequest() else {
            request.reply(error: 0)
            return
        }
        guard locks.hasRoom(for: lockRequest, unlocking: true) else {
            request.reply(error: ENOLCK)
            return
        }
        if policy.sharesLocks, file.pointee.canWrite, locks.mayGuardChanges(lockRequest), !isSole(id.rawValue) {
            let (uid, message) = (request.caller.uid, request.message)
            guard let detached = request.detach() else { return locks.undo(lockRequest, of: id.rawValue) }
            locks.finish(
                LockWaiter(
                    scope: locks.scope(scope), node: id.rawValue, uid: uid, lockRequest: lockRequest, isGranted: true, message: message,
                    request: detached))
        } else {
            locks.undo(lockRequest, of: id.rawValue)
            request.reply(error: 0)
        }
    }

    private func take(_ lockRequest: LockRequest, _ request: consuming Request, _ scope: ScopeID, _ id: NodeID, wait: Bool) {
        guard locks.hasRoom(for: lockRequest) else {
            request.reply(error: ENOLCK)
            return
        }
        let uid = request.caller.uid
        let result = locks.attempt(lockRequest)
        if result == 0, policy.sharesLocks, !isSole(id.rawValue) {
            let message = request.message
            guard let detached = request.detach() else { return }
            locks.refresh(
                LockWaiter(
                    scope: locks.scope(scope), node: id.rawValue, uid: uid, lockRequest: lockRequest, isGranted: true, message: message,
                    request: detached))
            return
        }
        guard result == -EAGAIN || result == -EACCES, wait else {
            reply(request, result)
            return
        }
        // The file stays open while a request waits for a lock on it: the kernel sends RELEASE only
        // after the reply.
        let message = request.message
        guard let detached = request.detach() else { return }
        locks.wait(
            LockWaiter(
                scope: locks.scope(scope), node: id.rawValue, uid: uid, lockRequest: lockRequest, message: message, request: detached))
    }
}

extension ViewFS: LockHost {
    package func lockWhole(file id: UInt64, operation: Int32) -> Int32 {
        guard let file = files.acquire(id) else { return -EBADF }
        defer { files.drop(id) }
        return clinux_flock(file.pointee.descriptor, operation)
    }

    package func mustRevalidate(_ node: UInt64) -> Bool { policy.sharesLocks && !isSole(node) }

    /// Makes the kernel write back a file's mapped data and drop its cache.
    package func writeBackData(_ id: UInt64) { _ = session?.notifier.invalidateData(NodeID(id)) }

    /// Invalidates the kernel's cache of a file that was just locked, as NFS does.
    ///
    /// Programs then see data that other processes wrote before they unlocked it, in this mount, in
    /// another or on the host. From now on the names in its directory are looked up each time.
    /// Programs that lock files signal each other by files that appear and disappear (SQLite by its
    /// journal).
    package func revalidate(_ id: UInt64) {
        guard let node = tree.nodes.find(id) else { return }
        if let parent = tree.nodes.find(node.pointee.parent.load(ordering: .relaxed)) {
            parent.pointee.isShared.store(true, ordering: .relaxed)
        }
        // Read before the invalidation: data dropped before the file was found to be unshared may
        // have changed since then.
        let wasStale = node.pointee.oplock.load(ordering: .sequentiallyConsistent) == .stale
        _ = session?.notifier.invalidateData(NodeID(id))
        if wasStale { _ = node.pointee.oplock.compareExchange(expected: .stale, desired: .sole, ordering: .sequentiallyConsistent) }
    }

    /// Whether only programs of this mount have a file open, with a fresh cache.
    ///
    /// Call it after a lock was taken and before it is given up. A process that opens the file and
    /// takes the lock in between first makes it false. Data stored until then is written back for
    /// that process.
    func isSole(_ id: UInt64) -> Bool {
        guard oplocks != nil, let node = tree.nodes.find(id) else { return false }
        return node.pointee.oplock.load(ordering: .sequentiallyConsistent) == .sole
    }

    /// Probes a file before a lock is taken.
    ///
    /// The first lock of a range opens the file again for its owner, and then a probe is no longer
    /// possible. A lock of the whole file does not, so the probe waits until more requests come.
    private func probeOplock(locking file: UnsafeMutablePointer<OpenFile>, _ id: UInt64, whole: Bool) {
        guard let oplocks, let node = tree.nodes.find(id), node.pointee.type == S_IFREG else { return }
        let count = node.pointee.lockRequests.load(ordering: .relaxed)
        if count < Node.oplockThreshold { node.pointee.lockRequests.store(count + 1, ordering: .relaxed) }
        switch node.pointee.oplock.load(ordering: .relaxed) {
        case .unknown: if whole, count < Node.oplockThreshold { return }
        case .rare: if !whole || count < Node.oplockThreshold { return }
        case .expected: break
        case .shared, .stale, .sole: return
        }
        oplocks.probe(id, node, file.pointee.descriptor)
    }

    /// Probes a file when it is opened: programs that run together open it before any locks it.
    ///
    /// `handle`: not yet known to the kernel.
    func probeOplock(opening handle: UInt64, _ id: UInt64, _ node: NodePointer) {
        guard let oplocks else { return }
        oplocks.opened(id, node.pointee.key)
        guard node.pointee.oplock.load(ordering: .relaxed) == .expected, let file = files.acquire(handle) else { return }
        oplocks.probe(id, node, file.pointee.descriptor)
        files.drop(handle)
    }
}

/// struct flock, whose name is also an operation's.
typealias LockRange = Glibc.flock
