import CGrantSystem
import Glibc
import GrantSystem
import GrantViewTree

/// The open file description that carries the locks of one owner on one node.
///
/// They are POSIX locks or open-file-description locks. Closed with its last user, which ends the
/// locks.
///
/// Locking: `order` is rank 3, held over calls that do not wait for locks of other owners. `ranges`
/// and `isGone` belong to the lock of its file.
package final class LockDescription: @unchecked Sendable {
    // Sendable: fixed, except for fields that the file's lock guards.
    /// Distinguishes it from every other description.
    let number: UInt64
    let owner: UInt64
    /// The open file that it was made for.
    let handle: UInt64
    let file: LockedFile
    /// The process that locked first.
    ///
    /// One owner is one process, except for open-file-description locks, which the protocol does
    /// not distinguish.
    let pid: pid_t
    /// The user to whose share it counts.
    let uid: uid_t
    package let descriptor: Int32
    /// The share of descriptors that the descriptor takes.
    private let share: QuotaReservation?
    /// One call at a time, so that `ranges` changes in the order of the locks.
    let order = Lock(())
    /// The ranges that the owner has locked through it, in order.
    var ranges: [LockedRange] = []
    /// Whether its owner has closed the file. Its remaining locks end with the last user.
    var isGone = false

    init(
        number: UInt64, owner: UInt64, handle: UInt64, file: LockedFile, pid: pid_t, uid: uid_t, descriptor: Int32,
        share: QuotaReservation? = nil
    ) {
        (self.number, self.owner, self.handle, self.file) = (number, owner, handle, file)
        (self.pid, self.uid, self.descriptor, self.share) = (pid, uid, descriptor, share)
    }

    /// The record for the next daemon. Set once, before the first lock.
    var record: Record?

    struct Record {
        let records: any LockRecorder
        let id: UInt64
    }

    deinit {
        if let record { record.records.remove(lock: record.id) }
        _ = clinux_close(descriptor)
    }
}

/// A locked part of a file.
package struct LockedRange: Equatable {
    package var start: Int64
    /// The last byte. `Int64.max` includes all bytes that are ever appended.
    package var end: Int64
    package let isExclusive: Bool

    /// `length` as in fcntl_locking(2): 0 extends to the end of the file.
    package init(start: Int64, length: Int64, isExclusive: Bool) {
        self.start = max(0, start)
        let (end, overflows) = self.start.addingReportingOverflow(max(0, length) &- 1)
        self.end = length == 0 || overflows ? .max : end
        self.isExclusive = isExclusive
    }

    /// All of a file.
    static let whole = LockedRange(start: 0, length: 0, isExclusive: true)

    func overlaps(_ other: LockedRange) -> Bool { start <= other.end && other.start <= end }

    func conflicts(with other: LockedRange) -> Bool { overlaps(other) && (isExclusive || other.isExclusive) }

    /// Whether a conflict with this range implies a conflict with `other`.
    func isPart(of other: LockedRange) -> Bool {
        other.start <= start && end <= other.end && (other.isExclusive || !isExclusive)
    }

    /// Extends the range from the first to the last byte of both.
    mutating func widen(to other: LockedRange) { (start, end) = (min(start, other.start), max(end, other.end)) }
}

/// The ranges of one owner, ordered and disjoint.
///
/// Adjacent ranges of one kind are joined, so that locking byte after byte makes no long list.
extension [LockedRange] {
    /// Locks or frees `range`, in any former state, and returns the changes.
    ///
    /// `removed`: the ranges that no longer exist. `added`: the ranges that replace them. Visits
    /// only ranges that `range` touches.
    mutating func set(_ range: LockedRange, isLocked: Bool) -> (removed: [LockedRange], added: [LockedRange]) {
        let touched = touched(by: range)
        var rest: [LockedRange] = []
        for old in self[touched] {
            if !old.overlaps(range) {
                rest.append(old)
                continue
            }
            var (left, right) = (old, old)
            if old.start < range.start {
                left.end = range.start &- 1
                rest.append(left)
            }
            if range.end < old.end {
                right.start = range.end &+ 1
                rest.append(right)
            }
        }
        if isLocked {
            let place = rest.firstIndex { $0.start > range.start } ?? rest.count
            rest.insert(range, at: place)
        }
        var joined: [LockedRange] = []
        for next in rest {
            if let last = joined.last, last.isExclusive == next.isExclusive, last.end == next.start &- 1 {
                joined[joined.count - 1].end = next.end
            } else {
                joined.append(next)
            }
        }
        var (removed, added) = (Array(self[touched]), joined)
        // Unchanged ranges are neither removed nor added.
        while let first = removed.first, first == added.first {
            removed.removeFirst()
            added.removeFirst()
        }
        while let last = removed.last, last == added.last {
            removed.removeLast()
            added.removeLast()
        }
        replaceSubrange(touched, with: joined)
        return (removed, added)
    }

    /// Whether freeing `range` splits a range in two.
    func isCut(by range: LockedRange) -> Bool {
        guard let old = self[touched(by: range)].first(where: { $0.overlaps(range) }) else { return false }
        return old.start < range.start && range.end < old.end
    }

    /// Whether any range that overlaps `range` is exclusive.
    func hasExclusive(in range: LockedRange) -> Bool { self[touched(by: range)].contains { $0.isExclusive && $0.overlaps(range) } }

    /// The ranges that overlap `range` or are adjacent to it.
    private func touched(by range: LockedRange) -> Range<Int> {
        let first = partition { $0.end < range.start - 1 }
        return first..<Swift.max(first, partition { $0.start - 1 <= range.end })
    }

    private func partition(_ isBefore: (LockedRange) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isBefore(self[middle]) { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

/// A lock that a caller requests.
package enum LockRequest {
    case range(LockDescription, LockedRange)
    /// flock(2) with LOCK_NB, on the open file's own description.
    case whole(file: UInt64, operation: Int32)
}
