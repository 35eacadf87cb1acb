import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Keeps the times of a backing file as the mount shows them, where writing or reading would change them.
//
// With write-back the kernel goes by its own mtime of a regular file. It sends that (`setattr`) before a close(2) or fsync(2) is
// answered, but only when it has changed: not when a file is written within the tick of its clock (1/HZ seconds) in which it was
// created or its mtime last sent (fs/inode.c, inode_needs_update_time). A page that the kernel writes back by itself may also
// arrive after the time that belongs to it. Each such write sets the backing file's mtime to that moment, which would show on the
// host, and here when the kernel has evicted the file. So the time that the kernel shows is recorded for each file that is changed,
// and restored before close(2) and fsync(2) are answered and when the file is released.
extension ViewFS {
    /// Records the time that the kernel shows, if it is not known, before a change of the file's data sets another. Until then it
    /// is the file's own.
    @inline(__always)
    func captureShownTime(of id: UInt64, _ descriptor: Int32) {
        guard policy.writeBack, let node = tree.nodes.find(id), node.pointee.dataVersion.load(ordering: .relaxed) == 0 else { return }
        captureOwnTime(of: node, descriptor)
    }

    @inline(never)
    private func captureOwnTime(of node: NodePointer, _ descriptor: Int32) {
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return }
        // Whoever was first has recorded it before anything changed.
        let time = ShownTime.encoded(status.st.st_mtim)
        _ = node.pointee.dataVersion.compareExchange(expected: 0, desired: time, ordering: .sequentiallyConsistent)
    }

    /// Marks a file's time as changed, after a change of its data and before the reply.
    @inline(__always)
    func markTimeDirty(of id: UInt64) {
        guard policy.writeBack, let node = tree.nodes.find(id) else { return }
        node.pointee.isTimeDirty.store(true, ordering: .sequentiallyConsistent)
    }

    /// Records the time that the kernel or a program sets, before the file gets it: the kernel shows it from then on.
    @inline(__always)
    func setShownTime(_ time: timespec, of node: NodePointer) {
        if policy.writeBack { node.pointee.dataVersion.store(ShownTime.encoded(time), ordering: .sequentiallyConsistent) }
    }

    /// Gives a file that may have been changed the time that the kernel shows for it, as the file's opener. Call it outside of
    /// scopes: it is the echo of a change, and refused where write-back is; then the time stays as it is.
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
        if !refuses(file.pointee.containment, .cacheWrite), Identity.assume(file.pointee.opener, groups: node.pointee.usesCallerGroups) == 0
        {
            restoreTime(of: node, file.pointee.descriptor)
        }
        coordinator.leave(slot: slot)
    }

    /// The same inside the scope, as the caller. Where the caller may not set times, as of other users' files without CAP_FOWNER,
    /// the file keeps its own.
    @inline(never)
    func restoreTime(of node: NodePointer, _ descriptor: Int32) {
        // Later changes set it again.
        node.pointee.isTimeDirty.store(false, ordering: .sequentiallyConsistent)
        var shown = node.pointee.dataVersion.load(ordering: .sequentiallyConsistent)
        // A time that arrives meanwhile is recorded first and set afterwards, so it may have been overwritten here, and is checked
        // again. Not for as long as programs set times: the last one is set by its own request.
        for _ in 0..<Self.timeRounds {
            guard let time = ShownTime.decoded(shown) else { return }
            var status = FileStatus()
            guard clinux_statx(descriptor, nil, &status) == 0 else { return }
            if ShownTime.encoded(status.st.st_mtim) != shown {
                var times = (timespec(tv_sec: 0, tv_nsec: timeOmitted), time)
                let result = withUnsafePointer(to: &times) {
                    $0.withMemoryRebound(to: timespec.self, capacity: 2) { clinux_utimens_descriptor(descriptor, $0) }
                }
                if result < 0 { return }
            }
            let now = node.pointee.dataVersion.load(ordering: .sequentiallyConsistent)
            if now == shown { return }
            shown = now
        }
    }

    private static let timeRounds = 8

    /// The mtime that the kernel shows for a file that may have another; nil where the file has the same.
    func shownTime(of node: NodePointer) -> timespec? {
        node.pointee.isTimeDirty.load(ordering: .relaxed) ? ShownTime.decoded(node.pointee.dataVersion.load(ordering: .relaxed)) : nil
    }

    // MARK: access times

    /// Sets whether reading files and listing directories leaves their access times alone, from their next open on. On any thread.
    public func leaveAccessTimes(offFiles: Bool, offDirectories: Bool) {
        leavesAccessTimes.store(offFiles, ordering: .relaxed)
        leavesDirectoryAccessTimes.store(offDirectories, ordering: .relaxed)
    }

    /// Returns an opened file, after making its reads leave the access time alone (O_NOATIME) if that is asked for. A user's daemon
    /// can do that for the user's own files; others are read as usual.
    @inline(__always)
    func keepingAccessTime(_ opened: Int32) -> Int32 {
        if opened >= 0, leavesAccessTimes.load(ordering: .relaxed) { _ = clinux_keep_access_time(opened) }
        return opened
    }
}

// UTIME_OMIT
private let timeOmitted = (1 << 30) - 2

/// Encodes a time as one word that is never 0; 0 for a time that does not fit (before 1677 and after 2262), which then counts as
/// unknown.
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
