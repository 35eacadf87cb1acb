import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Advisory locks, held on the backing files, where the host sees them.
///
/// So do other mounts.
///
/// A POSIX lock belongs to a process and a file. Here it is an open-file-description lock of a
/// description that only this owner uses. A lock that has to wait leaves its worker: see
/// `LockTable+Waiting`.
///
/// Only programs that lock pay for locks. There is a lock for each grant (`ScopeLocks`) and one for
/// each file (`LockedFile`). Closing a file without locks takes none of them.
///
/// Locking: `scopes` and `waits` (rank 3) are held for one dictionary access. Lock calls and
/// replies are made outside of all locks.
package final class LockTable: @unchecked Sendable {
    // Sendable: mutable state is behind locks. `host` is set before other threads use it.
    let scopes = Lock<[UInt32: ScopeLocks]>([:])
    /// Removed scopes, kept because a running interrupt may still access their waiters.
    private let ended = Lock<[(scope: ScopeLocks, since: Int64)]>([])
    let waits = Lock(Waits())
    let freeSlots: Lock<[Int]>
    package let refreshers = ThreadPool()
    package weak nonisolated(unsafe) var host: (any LockHost)?
    /// The host's nodes.
    ///
    /// Every close reads them, so the tree is kept here to count no references to the host.
    private let tree: NodeTree?
    private let count = Atomic<UInt64>(0)

    /// Records the owners of locks for the next daemon.
    let records: (any LockRecorder)?

    /// Makes an empty table.
    ///
    /// - Parameters:
    ///   - tree: nil for a table that only searches for deadlocks.
    ///   - slots: The coordinator's slots of the retrying threads, one for each grant.
    package init(tree: NodeTree? = nil, records: (any LockRecorder)? = nil, slots: Range<Int> = 0..<0) {
        (self.tree, self.records, freeSlots) = (tree, records, Lock(Array(slots)))
    }

    /// The requests for ranges by their owners, for searches for deadlocks.
    struct Waits {
        var byOwner: [UInt64: [LockWaiter]] = [:]
        /// The number of waiters so far.
        var count: UInt64 = 0
    }

    /// Runs `body` with a lock of the table held that every waiting request needs.
    ///
    /// For tests of a daemon's death.
    package func whileLocked(_ body: () -> Void) { waits.withLock { _ in body() } }

    // MARK: scopes and files

    package func scope(_ id: ScopeID) -> ScopeLocks {
        scopes.withLock { scopes in
            if let known = scopes[id.rawValue] { return known }
            let made = ScopeLocks(id: id)
            scopes[id.rawValue] = made
            return made
        }
    }

    func knownScope(_ id: UInt32) -> ScopeLocks? { scopes.withLock { $0[id] } }

    var allScopes: [ScopeLocks] { scopes.withLock { Array($0.values) } }

    /// Runs `body` with a file's state. Makes the file if it is not known yet.
    func withFile<Result>(_ node: UInt64, in scope: ScopeLocks, _ body: (LockedFile, inout LockedFile.State) -> Result) -> Result {
        while true {
            let file = scope.state.withLock { state -> LockedFile in
                if let known = state.files[node] { return known }
                let made = LockedFile(node: node, scope: scope)
                state.files[node] = made
                tree?.nodes.find(node)?.pointee.isLocked.store(true, ordering: .releasing)
                return made
            }
            // It may have been removed between the two locks.
            if let result = file.state.withLock({ $0.isGone ? nil : .some(body(file, &$0)) }) { return result }
        }
    }

    /// Whether any lock is held in the file. Takes no lock.
    ///
    /// A lock request was answered before its owner closes the file, so the closing owner sees its
    /// own locks.
    @inline(__always)
    private func isLocked(_ id: UInt64) -> Bool { tree?.nodes.find(id)?.pointee.isLocked.load(ordering: .acquiring) ?? false }

    /// The file if any lock is held in it.
    private func lockedFile(_ id: UInt64) -> LockedFile? {
        guard let node = tree?.nodes.find(id), isLocked(id) else { return nil }
        return knownScope(node.pointee.scope)?.state.withLock { $0.files[id] }
    }

    /// Removes a file from its scope if it has no lock and no waiter.
    func removeIfUnused(_ file: LockedFile) {
        file.scope.state.withLock { scope in
            file.state.withLock { state in
                guard !state.isGone, state.isEmpty else { return }
                state.isGone = true
                scope.files[file.node] = nil
                tree?.nodes.find(file.node)?.pointee.isLocked.store(false, ordering: .releasing)
            }
        }
    }

    // MARK: trying

    /// Tries once. Returns 0 or a negative error number, -EAGAIN if another owner blocks it.
    ///
    /// Locking: the description's `order`, then its file's for a moment.
    package func attempt(_ lockRequest: LockRequest) -> Int32 {
        switch lockRequest {
        case .range(let description, let range): return set(range, of: description, isLocked: true)
        case .whole(let id, let operation):
            return host?.lockWhole(file: id, operation: operation) ?? -EBADF
        }
    }

    /// Ends the lock that a request may have taken, and lets its waiters try.
    package func undo(_ lockRequest: LockRequest, of node: UInt64) {
        switch lockRequest {
        case .range(let description, let range): _ = set(range, of: description, isLocked: false)
        case .whole(let file, _):
            _ = attempt(.whole(file: file, operation: LOCK_UN))
            wholeFileUnlocked(of: node)
        }
    }

    /// Whether the owner's user may take another lock. Otherwise the request fails with ENOLCK.
    ///
    /// With `unlocking`: whether the unlock is possible. It takes a lock if it splits a range in
    /// two.
    package func hasRoom(for lockRequest: LockRequest, unlocking: Bool = false) -> Bool {
        // A new lock splits at most one other range.
        guard case .range(let description, let range) = lockRequest,
            description.file.scope.locks(of: description.uid) > LockShare.mostLocks - 2
        else { return true }
        return unlocking && !description.file.state.withLock { _ in description.ranges.isCut(by: range) }
    }

    private func set(_ range: LockedRange, of description: LockDescription, isLocked: Bool) -> Int32 {
        let file = description.file
        let (result, more, isAwaited) = description.order.withLock { _ -> (Int32, Int, Bool) in
            let type = isLocked ? (range.isExclusive ? F_WRLCK : F_RDLCK) : F_UNLCK
            let length = range.end == .max ? 0 : range.end &- range.start &+ 1
            let result = clinux_ofd_set_lock(description.descriptor, Int16(truncatingIfNeeded: type), range.start, length)
            if result != 0 { return (result, 0, false) }
            let noted = file.update(range, of: description, isLocked: isLocked)
            return (0, noted.more, noted.isAwaited)
        }
        if more != 0 { _ = file.scope.count(more, of: description.uid) }
        if isAwaited { file.scope.enqueue(file) }
        return result
    }

    // MARK: owners

    func nextNumber() -> UInt64 { count.wrappingAdd(1, ordering: .relaxed).newValue }

    /// The description of `owner` on `node`, made by opening the file of `handle` again.
    ///
    /// It takes a share of the descriptors. Fails with the error of open(2), or with ENOLCK if the
    /// user has too many locks or there are no descriptors.
    package func description(
        _ owner: UInt64, of node: UInt64, in scope: ScopeID, handle: UInt64, pid: pid_t, uid: uid_t, share: () -> QuotaReservation?,
        open: () -> Int32
    ) -> Result<LockDescription, Errno> {
        let scope = self.scope(scope)
        if let known = withFile(node, in: scope, { _, state in state.owners[owner] }) { return .success(known) }
        guard scope.count(1, of: uid, limit: LockShare.mostLocks) else { return .failure(Errno(ENOLCK)) }
        let share = share()
        let descriptor = share == nil ? -ENFILE : open()
        if descriptor < 0 {
            _ = scope.count(-1, of: uid)
            if let file = scope.state.withLock({ $0.files[node] }) { removeIfUnused(file) }
            return .failure(Errno([-EMFILE, -ENFILE].contains(descriptor) ? ENOLCK : Errno.number(of: descriptor)))
        }
        let number = nextNumber()
        let (description, isNew) = withFile(node, in: scope) { file, state -> (LockDescription, Bool) in
            let made = LockDescription(
                number: number, owner: owner, handle: handle, file: file, pid: pid, uid: uid, descriptor: descriptor,
                share: share)
            // Threads of one process can get here together. The second one's description holds no
            // lock yet.
            if let known = state.owners[owner] { return (known, false) }
            made.record = record(made, in: scope.id)
            state.owners[owner] = made
            state.handles[handle, default: []].append(owner)
            return (made, true)
        }
        if !isNew { _ = scope.count(-1, of: uid) }
        return .success(description)
    }

    /// Records a new description, before the first lock through it.
    ///
    /// Without memory for the record, the next daemon does not know the owner of its locks, and
    /// ends them.
    func record(_ made: LockDescription, in scope: ScopeID) -> LockDescription.Record? {
        guard let records else { return nil }
        let record = LockRecord(
            scope: scope.rawValue, descriptor: made.descriptor, node: made.file.node, owner: made.owner, handle: made.handle,
            pid: made.pid, uid: made.uid)
        return records.add(record).map { LockDescription.Record(records: records, id: $0) }
    }

    package func existingDescription(_ owner: UInt64, of node: UInt64) -> LockDescription? {
        lockedFile(node)?.state.withLock { $0.owners[owner] }
    }

    /// The process of this mount that has locked the byte at `start`. Returns nil if there is none.
    package func holder(of start: Int64, isExclusive: Bool, on node: UInt64, besides owner: UInt64) -> pid_t? {
        lockedFile(node)?.state.withLock { state in
            var pid: pid_t?
            state.held.visit(overlapping: LockedRange(start: start, length: 1, isExclusive: isExclusive)) { held in
                if held.owner != owner, held.range.isExclusive == isExclusive { pid = held.pid }
                return pid == nil
            }
            return pid
        }
    }

    /// Whether changes can have been made under a lock. Programs that only read take shared ones.
    package func mayGuardChanges(_ lockRequest: LockRequest) -> Bool {
        switch lockRequest {
        case .range(let description, let range): description.file.state.withLock { _ in description.ranges.hasExclusive(in: range) }
        case .whole: true
        }
    }

    /// Ends all POSIX locks of a process on a file.
    ///
    /// Called for close(2) of any of its descriptors.
    @inline(__always)
    package func releaseOwner(_ owner: UInt64, of node: NodeID) {
        if isLocked(node.rawValue) { releaseLocks(ofOwner: owner, node) }
    }

    @inline(never)
    private func releaseLocks(ofOwner owner: UInt64, _ node: NodeID) {
        guard let file = lockedFile(node.rawValue) else { return }
        release(file) { state in state.owners[owner].map { [$0] } ?? [] }
    }

    /// Ends open-file-description locks at the last close of the open file that made them.
    @inline(__always)
    package func releaseFile(_ handle: UInt64, of node: NodeID) {
        if isLocked(node.rawValue) { releaseLocks(ofFile: handle, node) }
    }

    @inline(never)
    private func releaseLocks(ofFile handle: UInt64, _ node: NodeID) {
        guard let file = lockedFile(node.rawValue) else { return }
        release(file) { state in (state.handles[handle] ?? []).compactMap { state.owners[$0] } }
        // A lock of the whole file ends when the file is closed, a moment later: by then its
        // waiters are retried.
        wholeFileUnlocked(of: node.rawValue)
    }

    private func release(_ file: LockedFile, _ meant: (LockedFile.State) -> [LockDescription]) {
        let gone = file.state.withLock { state -> [LockDescription] in
            let gone = meant(state)
            for description in gone { state.takeOut(description) }
            return gone
        }
        if gone.isEmpty { return }
        // Now, and not when the last reference to a description is dropped.
        for description in gone {
            let result = set(.whole, of: description, isLocked: false)
            // If a filesystem fails to unlock, the lock ends with the descriptor. Until then no
            // request must wait for it.
            if result != 0 { forgetRanges(of: description) }
            _ = file.scope.count(-1, of: description.uid)
        }
        removeIfUnused(file)
    }

    private func forgetRanges(of description: LockDescription) {
        let noted = description.file.update(.whole, of: description, isLocked: false)
        _ = description.file.scope.count(noted.more, of: description.uid)
        if noted.isAwaited { description.file.scope.enqueue(description.file) }
    }

    /// Ends the locks of every owner below a grant that was revoked.
    package func releaseScope(_ id: ScopeID) {
        guard let scope = knownScope(id.rawValue) else { return }
        for file in scope.state.withLock({ Array($0.files.values) }) { release(file) { Array($0.owners.values) } }
    }

    /// Does the same for files that have left the granted directory.
    package func releaseFiles(_ nodes: Set<UInt64>, in id: ScopeID) {
        guard let scope = knownScope(id.rawValue) else { return }
        let files = scope.state.withLock { state in state.files.values.filter { nodes.contains($0.node) } }
        for file in files { release(file) { Array($0.owners.values) } }
    }

    /// Removes a scope that is shut and that no operation is inside.
    package func forget(_ id: ScopeID) {
        releaseScope(id)
        guard let scope = scopes.withLock({ $0.removeValue(forKey: id.rawValue) }) else { return }
        ended.withLock { ended in
            let now = Clock.monotonic
            ended.removeAll { $0.since < now - 10_000_000_000 }
            ended.append((scope, now))
        }
    }

    /// Records that a lock of the whole file may have ended, and wakes its waiters.
    package func wholeFileUnlocked(of node: UInt64) {
        guard let file = lockedFile(node) else { return }
        if file.state.withLock({ $0.freeWhole() }) { file.scope.enqueue(file) }
    }
}
