import CLinux
import Glibc
import LinuxFS
import ViewTree

/// The open file description that carries the POSIX (or open-file-description) locks of one owner on one node. Closed with its last user,
/// which ends its locks.
///
/// Locking: `order` is rank 3, held over calls that do not wait for others' locks; `ranges` belongs to the table's lock.
final class LockDescription: @unchecked Sendable {
    // Safe to share: fixed, but for `ranges`, which only `LockTable` touches.
    let owner: UInt64
    /// The open file that it was made for.
    let file: UInt64
    let node: UInt64
    /// The process that locked first. One owner is one process, but for open-file-description locks, which the protocol does not tell from others.
    let pid: pid_t
    let descriptor: Int32
    /// Whose share the descriptor is.
    private let share: HeldShare?
    /// One call at a time, so that `ranges` changes in the order in which the locks did.
    let order = Lock(())
    /// What the owner has locked through it.
    var ranges: [LockedRange] = []

    init(owner: UInt64, file: UInt64, node: UInt64, pid: pid_t, descriptor: Int32, share: HeldShare?) {
        (self.owner, self.file, self.node, self.pid, self.descriptor, self.share) = (owner, file, node, pid, descriptor, share)
    }

    deinit { _ = clinux_close(descriptor) }
}

/// A locked part of a file.
struct LockedRange: Equatable {
    var start: Int64
    /// The last byte; `Int64.max` for all that ever comes.
    var end: Int64
    let isExclusive: Bool

    /// `length` as fcntl_locking(2) has it: 0 is up to wherever the file ends.
    init(start: Int64, length: Int64, isExclusive: Bool) {
        self.start = start
        end = length == 0 ? .max : start + (length - 1)
        self.isExclusive = isExclusive
    }

    func conflicts(with other: LockedRange) -> Bool {
        start <= other.end && other.start <= end && (isExclusive || other.isExclusive)
    }
}

extension [LockedRange] {
    /// Makes `range` locked as it says, or free, whatever was there before.
    mutating func set(_ range: LockedRange, isLocked: Bool) {
        var rest: [LockedRange] = []
        for old in self {
            if old.end < range.start || range.end < old.start {
                rest.append(old)
                continue
            }
            var (left, right) = (old, old)
            if old.start < range.start {
                left.end = range.start - 1
                rest.append(left)
            }
            if range.end < old.end {
                right.start = range.end + 1
                rest.append(right)
            }
        }
        if isLocked { rest.append(range) }
        // Neighbours of a kind become one, so that locking byte after byte makes no long list.
        rest.sort { $0.start < $1.start }
        self = []
        for next in rest {
            if let last = last, last.isExclusive == next.isExclusive, last.end + 1 == next.start {
                self[count - 1].end = next.end
            } else {
                append(next)
            }
        }
    }
}

/// What somebody wants to lock.
enum LockWish {
    case range(LockDescription, LockedRange)
    /// flock(2) with LOCK_NB, on the open file's own description.
    case whole(file: UInt64, operation: Int32)
}
