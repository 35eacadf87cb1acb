import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Changes beside a mount whose kernel trusts its own sizes and times of regular files (write-back).
extension ViewFS {
    /// Makes the kernel read a file that was changed beside the mount. Data that programs here wrote and the kernel still holds is
    /// written back first, over the change.
    ///
    /// An unused file is evicted whole, so the next open sees its size and times. For a file in use the kernel takes neither a
    /// smaller size nor other times: new contents show, and what was appended.
    ///
    /// Waits for write-back, so a thread that may be abandoned calls it.
    func takeHostChange(of id: UInt64, _ notifier: Notifier) {
        _ = notifier.prune([id])
        guard notifier.invalidateData(NodeID(id)) == 0, let scope = tree.nodes.find(id)?.pointee.scope, let nodes = tree.scope(scope) else {
            return
        }
        // A single byte makes no page from which the kernel answers, so nothing is left for readers after a withdrawal; at the
        // beginning of a page it would (fs/fuse/dev.c, fuse_notify_store).
        guard let last = tree.withLive(id, in: nodes, { lastByte(of: id, $0) }) ?? nil, last.place & (Self.smallestPage - 1) != 0 else {
            return
        }
        _ = notifier.store(last.byte, at: last.place, of: NodeID(id))
    }

    /// In bytes, of any processor: pages may begin at multiples of it.
    private static let smallestPage = 4096

    /// The last byte of a regular file behind the mount, and its position; nil for an empty or unreadable file.
    private func lastByte(of id: UInt64, _ node: NodePointer) -> (byte: UInt8, place: off_t)? {
        let pinned = tree.pin(node)
        defer { tree.unpin(id, node) }
        guard node.pointee.type == S_IFREG, pinned >= 0 else { return nil }
        let opened = clinux_reopen(pinned, O_RDONLY | O_NONBLOCK)
        guard opened >= 0 else { return nil }
        let file = FileDescriptor(owning: opened)
        // No program has read anything. A user's daemon can avoid that for the user's own files.
        _ = clinux_keep_access_time(file.number)
        var status = FileStatus()
        guard clinux_statx(file.number, nil, &status) == 0, status.st.st_size > 0 else { return nil }
        var byte: UInt8 = 0
        let place = status.st.st_size - 1
        return pread(file.number, &byte, 1, place) == 1 ? (byte, place) : nil
    }

    /// How changes beside the mount are noticed: nil where they are not, else `directories` or `names`.
    public func hostChangeMeans(of scope: Scope) -> ChangeWatch.Means? {
        ChangeWatch.Means(rawValue: scope.nodes.watchMeans.load(ordering: .relaxed))
    }

    /// Whether the kernel caches anything that must be invalidated then.
    public var keepsContents: Bool { hostWatch != nil }

    /// Whether changes beside the mount show only when the kernel drops its caches, because the filesystem cannot be watched, or
    /// not by this user.
    public func hasUntoldChanges(_ scope: Scope) -> Bool { policy.writeBack && scope.nodes.watchMeans.load(ordering: .relaxed) == 0 }

    /// Whether a file is being written through the mount, or was a moment ago.
    func isWrittenHere(_ id: UInt64) -> Bool {
        guard let node = tree.nodes.find(id) else { return false }
        return kernelOpens ? node.pointee.cachedOpens.writer != 0 : node.pointee.writers.load(ordering: .relaxed) > 0
    }
}
