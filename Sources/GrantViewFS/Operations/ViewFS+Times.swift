import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Times that the file behind has otherwise than they are shown, or gets by what is only looking.
//
// With write-back the kernel goes by its own time of modification of a regular file. It brings that (`setattr`) before a close(2) or fsync(2) is answered, but only
// when it has changed: not when a file is written to within the tick of its clock (1/HZ seconds) in which it was made, or brought last
// (fs/inode.c, inode_needs_update_time). A page that the kernel writes back by itself may also come after the time that belongs to it. Each such write
// gives the file behind the time of that moment, which would show when the kernel has forgotten the file, and on the host. So the time that the kernel shows
// is known of each file that is changed, and is given back to it before close(2) and fsync(2) are answered and when it is released.
extension ViewFS {
    /// Before a change of a file's data, which gives it another time: notes the one that the kernel shows, if that is not known. It is the file's own then.
    @inline(__always)
    func captureShownTime(of id: UInt64, _ descriptor: Int32) {
        guard policy.writeBack, let node = tree.nodes.find(id), node.pointee.dataVersion.load(ordering: .relaxed) == 0 else { return }
        captureOwnTime(of: node, descriptor)
    }

    @inline(never)
    private func captureOwnTime(of node: NodePointer, _ descriptor: Int32) {
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return }
        // Whoever was first has noted it before anything was changed.
        let time = ShownTime.encoded(status.st.st_mtim)
        _ = node.pointee.dataVersion.compareExchange(expected: 0, desired: time, ordering: .sequentiallyConsistent)
    }

    /// After a change of a file's data, before it is answered.
    @inline(__always)
    func markTimeDirty(of id: UInt64) {
        guard policy.writeBack, let node = tree.nodes.find(id) else { return }
        node.pointee.isTimeDirty.store(true, ordering: .sequentiallyConsistent)
    }

    /// Before the kernel's time, or one that a program has set, is given to the file: it is what the kernel shows from then on.
    @inline(__always)
    func setShownTime(_ time: timespec, of node: NodePointer) {
        if policy.writeBack { node.pointee.dataVersion.store(ShownTime.encoded(time), ordering: .sequentiallyConsistent) }
    }

    /// Gives a file that may have been changed the time that the kernel shows of it, as whoever opened it. To be called outside of scopes: it is the echo of a change,
    /// and refused where write-back is; then the time stays as it is.
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

    /// The same for who is inside the scope and acts as the caller. Who may not set times, as of other people's files without CAP_FOWNER, leaves the file its own.
    @inline(never)
    func restoreTime(of node: NodePointer, _ descriptor: Int32) {
        // Whoever changes it from here on says so again.
        node.pointee.isTimeDirty.store(false, ordering: .sequentiallyConsistent)
        var shown = node.pointee.dataVersion.load(ordering: .sequentiallyConsistent)
        // A time that was brought meanwhile is noted first and set afterwards, so it may have been overwritten here, and is looked for once more. Not for as
        // long as somebody sets times: his last one is set by himself.
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

    /// The time of modification that the kernel shows of a file which may have another one; nil where it has no other.
    func shownTime(of node: NodePointer) -> timespec? {
        node.pointee.isTimeDirty.load(ordering: .relaxed) ? ShownTime.decoded(node.pointee.dataVersion.load(ordering: .relaxed)) : nil
    }

    // MARK: the time of last access

    /// Whether reading files and listing directories leaves their times of last access alone, from their next opening on. By any thread.
    public func leaveAccessTimes(offFiles: Bool, offDirectories: Bool) {
        leavesAccessTimes.store(offFiles, ordering: .relaxed)
        leavesDirectoryAccessTimes.store(offDirectories, ordering: .relaxed)
    }

    /// An opened file, after its reading leaves the time of last access alone if it is to. The daemon of a user may that of the user's own files; others it reads as ever.
    @inline(__always)
    func keepingAccessTime(_ opened: Int32) -> Int32 {
        if opened >= 0, leavesAccessTimes.load(ordering: .relaxed) { _ = clinux_keep_access_time(opened) }
        return opened
    }
}

// UTIME_OMIT
private let timeOmitted = (1 << 30) - 2

/// A time as one word that is never 0, or 0 for one that has no room in it (before 1677 and after 2262): that is not known then.
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
    /// The epoch is a time as any other.
    private static let bias: UInt64 = 1 << 63
}
