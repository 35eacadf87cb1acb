import CLinux
import Coordinator
import FUSEKit
import Glibc
import Synchronization
import ViewTree

// What the table of locks keeps: descriptions that carry locks, wishes for them, and who waits.
extension LockTable {
    /// The description that carries the locks of one owner on one node. Closed with its last user, which ends its locks.
    final class Description {
        let owner: UInt64
        let file: UInt64
        let descriptor: Int32
        init(owner: UInt64, file: UInt64, descriptor: Int32) {
            (self.owner, self.file, self.descriptor) = (owner, file, descriptor)
        }
        deinit { _ = clinux_close(descriptor) }
    }

    enum Wish {
        case range(Description, type: Int16, start: Int64, length: Int64)
        /// `operation` with LOCK_NB, on the open file's own description.
        case whole(file: UInt64, operation: Int32)

        /// Whether it takes a lock rather than ending one.
        var locks: Bool {
            switch self {
            case .range(_, let type, _, _): type != Int16(F_UNLCK)
            case .whole(_, let operation): operation & LOCK_UN == 0
            }
        }

        /// Tries once. 0, or a negative error number; -EAGAIN when another owner is in the way.
        func attempt(in files: OpenFiles) -> Int32 {
            switch self {
            case .range(let description, let type, let start, let length):
                return clinux_ofd_set_lock(description.descriptor, type, start, length)
            case .whole(let id, let operation):
                guard let file = files.hold(id) else { return -EBADF }
                defer { files.letGo(id) }
                return clinux_flock(file.pointee.descriptor, operation)
            }
        }

        /// Ends what a successful attempt took.
        func undo(in files: OpenFiles) {
            switch self {
            case .range(let description, _, let start, let length):
                _ = clinux_ofd_set_lock(description.descriptor, Int16(F_UNLCK), start, length)
            case .whole(let file, _): _ = Wish.whole(file: file, operation: LOCK_UN).attempt(in: files)
            }
        }
    }

    /// Somebody who waits. `interrupted` is set by the kernel's INTERRUPT, from whichever thread receives it.
    final class Waiter: @unchecked Sendable {
        // Safe to share: `request` is taken under the table's lock, once; the flag is atomic.
        let scope: ScopeID
        let node: UInt64
        /// Until it is answered: what it would lock must not stay open for its sake. Under the table's lock.
        var wish: Wish?
        var request: DetachedRequest?
        let interrupted = Atomic<Bool>(false)
        /// It has its lock and waits for the kernel's view of the file. Set before it is shared.
        var isGranted = false
        init(scope: ScopeID, node: UInt64, wish: Wish, request: consuming DetachedRequest) {
            self.scope = scope
            self.node = node
            self.wish = wish
            self.request = .some(request)
        }
    }
}
