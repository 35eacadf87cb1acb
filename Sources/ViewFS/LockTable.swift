import CLinux
import Coordinator
import FUSEKit
import Glibc
import LinuxFS
import Synchronization
import ViewTree

/// Advisory locks, held on the backing files themselves, so that the host and other mounts see them.
///
/// A POSIX lock belongs to a process and a file; here it is an open-file-description lock of a description that only this owner
/// uses. A lock that has to wait leaves its worker: see `LockTable+Waiting`.
///
/// Locking: one lock around the tables (rank 3); lock calls are made and replies are given outside.
final class LockTable: @unchecked Sendable {
    // Safe to share: everything is behind `state` but the count, which is atomic.

    struct State {
        var descriptions: [UInt64: [LockDescription]] = [:]
        var waiters: [LockWaiter] = []
        /// Waiters so far.
        var count: UInt64 = 0
        /// Answered waiters that an interrupt under way may still look at; let go a while later.
        var retired: [(waiter: LockWaiter, since: Int64)] = []
        /// The threads that try for those who wait, one for each scope in which somebody does.
        var lanes: [UInt32: LockLane] = [:]
        var freeSlots: [Int] = Array(ViewFS.lockSlots)
    }

    let state = Lock(State())
    let refreshers = KeptThreads()
    weak nonisolated(unsafe) var view: ViewFS?
    /// How many descriptions there are, so that each close(2) need not take the lock to find none. A lock's request was answered before
    /// its owner closes, so whoever closes sees its own counted.
    private let descriptionCount = Atomic<Int>(0)

    // MARK: trying

    /// Tries once. 0, or a negative error number; -EAGAIN when another owner is in the way.
    ///
    /// Locking: the description's `order`, then the table's for a moment.
    func attempt(_ wish: LockWish) -> Int32 {
        switch wish {
        case .range(let description, let range): return set(range, of: description, isLocked: true)
        case .whole(let id, let operation):
            guard let files = view?.files, let file = files.hold(id) else { return -EBADF }
            defer { files.letGo(id) }
            return clinux_flock(file.pointee.descriptor, operation)
        }
    }

    /// Ends what a wish may have taken, and lets those try who wait for it.
    func undo(_ wish: LockWish) {
        switch wish {
        case .range(let description, let range): _ = set(range, of: description, isLocked: false)
        case .whole(let file, _): _ = attempt(.whole(file: file, operation: LOCK_UN))
        }
        unlocked()
    }

    private func set(_ range: LockedRange, of description: LockDescription, isLocked: Bool) -> Int32 {
        description.order.withLock { _ in
            let type = isLocked ? (range.isExclusive ? F_WRLCK : F_RDLCK) : F_UNLCK
            let length = range.end == .max ? 0 : range.end - range.start + 1
            let result = clinux_ofd_set_lock(description.descriptor, Int16(type), range.start, length)
            if result == 0 { state.withLock { _ in description.ranges.set(range, isLocked: isLocked) } }
            return result
        }
    }

    // MARK: owners

    /// The description of `owner` on `node`, made by opening the file of `file` once more, which takes a share of the descriptors. Throws what open(2) says.
    func description(_ owner: UInt64, of node: UInt64, file: UInt64, pid: pid_t, share: () -> HeldShare?, open: () -> Int32) -> Result<
        LockDescription, Errno
    > {
        if let known = state.withLock({ $0.descriptions[node]?.first { $0.owner == owner } }) { return .success(known) }
        guard let share = share() else { return .failure(Errno(ENOLCK)) }
        let descriptor = open()
        if descriptor < 0 { return .failure(Errno(-descriptor)) }
        let made = LockDescription(owner: owner, file: file, node: node, pid: pid, descriptor: descriptor, share: share)
        return .success(
            state.withLock { state in
                // Threads of one process can come here together; the second one's description holds no lock yet.
                if let known = state.descriptions[node]?.first(where: { $0.owner == owner }) { return known }
                state.descriptions[node, default: []].append(made)
                descriptionCount.wrappingAdd(1, ordering: .releasing)
                return made
            })
    }

    func existingDescription(_ owner: UInt64, of node: UInt64) -> LockDescription? {
        state.withLock { $0.descriptions[node]?.first { $0.owner == owner } }
    }

    /// The process that has locked the byte at `start` here; nil when it was none of this mount.
    func holder(of start: Int64, isExclusive: Bool, on node: UInt64, besides owner: UInt64) -> pid_t? {
        state.withLock { state in
            state.descriptions[node]?.first { description in
                description.owner != owner
                    && description.ranges.contains { $0.start <= start && start <= $0.end && $0.isExclusive == isExclusive }
            }?.pid
        }
    }

    /// close(2) of any descriptor of the file by a process ends all its POSIX locks on it.
    func releaseOwner(_ owner: UInt64, of node: NodeID) {
        release {
            $0.owner == owner
        } of: {
            $0 == node.rawValue
        }
    }

    /// The last close of an open file ends what was locked through it: open-file-description locks.
    func releaseFile(_ file: UInt64) {
        release {
            $0.file == file
        } of: { _ in
            true
        }
    }

    private func release(_ isMeant: (LockDescription) -> Bool, of isNode: (UInt64) -> Bool) {
        if descriptionCount.load(ordering: .acquiring) == 0 { return }
        let gone = state.withLock { state -> [LockDescription] in
            var gone: [LockDescription] = []
            for (node, list) in state.descriptions where isNode(node) && list.contains(where: isMeant) {
                gone += list.filter(isMeant)
                let rest = list.filter { !isMeant($0) }
                state.descriptions[node] = rest.isEmpty ? nil : rest
            }
            descriptionCount.wrappingSubtract(gone.count, ordering: .releasing)
            return gone
        }
        if gone.isEmpty { return }
        // Now, not when the last reference to a description goes.
        for description in gone { _ = set(LockedRange(start: 0, length: 0, isExclusive: true), of: description, isLocked: false) }
        unlocked()
    }

    /// Ends the locks of every owner on the nodes of a scope that was revoked.
    func releaseScope(_ nodes: Set<UInt64>) { release({ _ in true }, of: { nodes.contains($0) }) }

    /// Something was unlocked here: whoever waits may try at once.
    func unlocked() {
        let lanes = state.withLock { state in state.lanes.isEmpty ? [] : Array(state.lanes.values) }
        for lane in lanes { lane.wake.post() }
    }
}
