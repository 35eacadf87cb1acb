import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Keeps a backing file's times as the mount shows them, where writing or reading would change them.
extension ViewFS {
    /// Records the time that the kernel shows, before a data change sets another.
    ///
    /// Does nothing if that time is recorded already. Until then it is the file's own.
    ///
    /// With write-back the kernel uses its own mtime of a regular file. It sends that mtime
    /// (`setattr`) before a close(2) or fsync(2) returns, but only if it has changed (fs/inode.c,
    /// inode_needs_update_time). The kernel's clock has ticks of 1/HZ seconds. A write within the
    /// tick in which the file was created, or its mtime last sent, changes no mtime. A page that
    /// the kernel writes back may also arrive after the time that belongs to it.
    ///
    /// Each such write sets the backing file's mtime to that moment. This would show on the host,
    /// and in the mount once the kernel has evicted the file. So the shown time is recorded for
    /// each changed file. It is restored before close(2) and fsync(2) return, and when the file is
    /// released.
    @inline(__always)
    func captureShownTime(of id: UInt64, _ descriptor: Int32) {
        guard policy.writeBack, let node = tree.nodes.find(id), node.pointee.dataVersion.load(ordering: .relaxed) == 0 else { return }
        captureOwnTime(of: node, descriptor)
    }

    @inline(never)
    private func captureOwnTime(of node: NodePointer, _ descriptor: Int32) {
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return }
        // The first thread has recorded it before anything changed.
        let time = ShownTime.encoded(status.st.st_mtim)
        _ = node.pointee.dataVersion.compareExchange(expected: 0, desired: time, ordering: .sequentiallyConsistent)
    }

    /// Marks a file's time as changed. Call it after a data change, before the reply.
    @inline(__always)
    func markTimeDirty(of id: UInt64) {
        guard policy.writeBack, let node = tree.nodes.find(id) else { return }
        node.pointee.isTimeDirty.store(true, ordering: .sequentiallyConsistent)
    }

    /// Records the time that the kernel or a program sets, before the file gets it.
    ///
    /// The kernel shows it from then on.
    @inline(__always)
    func setShownTime(_ time: timespec, of node: NodePointer) {
        if policy.writeBack { node.pointee.dataVersion.store(ShownTime.encoded(time), ordering: .sequentiallyConsistent) }
    }

    /// Sets the mtime of a changed file to the mtime that the kernel shows.
    ///
    /// Acts as the file's opener. Call it outside of scopes. It is the echo of a change and is
    /// refused if write-back is refused. The time is then unchanged.
    @inline(__always)
    func settleTime(of file: UnsafeMutablePointer<OpenFile>, slot: Int) {
        guard policy.writeBack, file.pointee.canWrite, let node = tree.nodes.find(file.pointee.node),
            node.pointee.isTimeDirty.load(ordering: .relaxed)
        else { return }
        settle(node, file, slot)
    }

    func settleTime(of handle: UInt64, _ request: borrowing Request) {
        guard policy.writeBack, let file = files.acquire(handle) else { return }
        settleTime(of: file, slot: request.worker.pointee.slot)
        files.drop(handle)
    }

    @inline(never)
    private func settle(_ node: NodePointer, _ file: UnsafeMutablePointer<OpenFile>, _ slot: Int) {
        guard coordinator.enter(ScopeID(rawValue: file.pointee.scope), for: .cacheWrite, slot: slot).isInside else { return }
        if refusal(by: file.pointee.containment, .cacheWrite) == nil,
            Identity.assume(file.pointee.opener, groups: node.pointee.usesCallerGroups) == 0
        {
            restoreTime(of: node, file.pointee.descriptor)
        }
        coordinator.leave(slot: slot)
    }

    /// Does the same inside the scope, as the caller.
    ///
    /// If the caller may not set times, as of other users' files without CAP_FOWNER, the file keeps
    /// its own.
    @inline(never)
    func restoreTime(of node: NodePointer, _ descriptor: Int32) {
        // Later changes set it again.
        node.pointee.isTimeDirty.store(false, ordering: .sequentiallyConsistent)
        var shown = node.pointee.dataVersion.load(ordering: .sequentiallyConsistent)
        // A time that arrives meanwhile is recorded first and set afterwards, so this may overwrite
        // it. Bounded: the last time is set by its own request.
        for _ in 0..<Self.timeRounds {
            guard let time = ShownTime.decoded(shown) else { return }
            var status = FileStatus()
            guard clinux_statx(descriptor, nil, &status) == 0 else { return }
            if ShownTime.encoded(status.st.st_mtim) != shown {
                var times = (timespec(tv_sec: 0, tv_nsec: timeOmitted), time)
                let result = withUnsafePointer(to: &times) {
                    $0.withMemoryRebound(to: timespec.self, capacity: 2) { times in
                        Identity.asAnyOwner { clinux_utimens_descriptor(descriptor, times) }
                    }
                }
                if result < 0 { return }
            }
            let now = node.pointee.dataVersion.load(ordering: .sequentiallyConsistent)
            if now == shown { return }
            shown = now
        }
    }

    private static let timeRounds = 8

    /// The mtime that the kernel shows for a file that may have another. Returns nil if both are
    /// the same.
    func shownTime(of node: NodePointer) -> timespec? {
        node.pointee.isTimeDirty.load(ordering: .relaxed) ? ShownTime.decoded(node.pointee.dataVersion.load(ordering: .relaxed)) : nil
    }

    // MARK: access times

    /// Sets whether reads and listings leave access times unchanged, from the next open on.
    ///
    /// Any thread may call it.
    public func leaveAccessTimes(offFiles: Bool, offDirectories: Bool) {
        leavesAccessTimes.store(offFiles, ordering: .relaxed)
        leavesDirectoryAccessTimes.store(offDirectories, ordering: .relaxed)
    }

    /// Returns an opened file, with O_NOATIME set if access times are left unchanged.
    ///
    /// A user's daemon can set it for the user's own files. Reads of other files change their
    /// access times.
    @inline(__always)
    func keepingAccessTime(_ opened: Int32) -> Int32 {
        if opened >= 0, leavesAccessTimes.load(ordering: .relaxed) { keepAccessTime(opened) }
        return opened
    }

    @inline(__always)
    func keepAccessTime(_ opened: Int32) {
        _ = Identity.asAnyOwner { clinux_keep_access_time(opened) }
    }
}

// UTIME_OMIT
private let timeOmitted = (1 << 30) - 2

/// Encodes a time as one word. 0 stands for an unknown time.
///
/// A time before 1677 or after 2262 does not fit, and counts as unknown.
private enum ShownTime {
    @inline(__always)
    static func encoded(_ time: timespec) -> UInt64 {
        let (seconds, isLarge) = Int64(truncatingIfNeeded: time.tv_sec).multipliedReportingOverflow(by: second)
        let (nanoseconds, isTooLarge) = seconds.addingReportingOverflow(Int64(truncatingIfNeeded: time.tv_nsec))
        return isLarge || isTooLarge ? 0 : UInt64(bitPattern: nanoseconds) ^ bias
    }

    static func decoded(_ word: UInt64) -> timespec? {
        if word == 0 { return nil }
        let (seconds, rest) = Int64(bitPattern: word ^ bias).quotientAndRemainder(dividingBy: second)
        return rest < 0
            ? timespec(tv_sec: Int(truncatingIfNeeded: seconds &- 1), tv_nsec: Int(truncatingIfNeeded: rest &+ second))
            : timespec(tv_sec: Int(truncatingIfNeeded: seconds), tv_nsec: Int(truncatingIfNeeded: rest))
    }

    private static let second: Int64 = 1_000_000_000
    /// The epoch is a time like any other.
    private static let bias: UInt64 = 1 << 63
}
