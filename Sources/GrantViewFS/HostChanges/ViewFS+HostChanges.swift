import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// What is changed beside a mount whose kernel goes by its own sizes and times of regular files (write-back).
extension ViewFS {
    /// Has the kernel take what is in a file that was changed beside the mount. What programs here have written and the kernel has not yet brought comes first, and over it.
    ///
    /// A file that nobody uses is forgotten whole, so who opens it next sees its size and times. Of one in use the kernel believes nobody a smaller size, nor other times: contents show, and what was added.
    ///
    /// Waits for write-back, so it is called by a thread that can be left behind.
    func takeHostChange(of id: UInt64, _ notifier: Notifier) {
        _ = notifier.prune([id])
        guard notifier.invalidateData(NodeID(id)) == 0, let scope = tree.nodes.find(id)?.pointee.scope, let nodes = tree.scope(scope) else {
            return
        }
        // The byte alone makes no page that the kernel answers from, so none is there for who comes after a withdrawal; at the beginning of a page it would (fs/fuse/dev.c, fuse_notify_store).
        guard let last = tree.withLive(id, in: nodes, { lastByte(of: id, $0) }) ?? nil, last.place & (Self.smallestPage - 1) != 0 else {
            return
        }
        _ = notifier.store(last.byte, at: last.place, of: NodeID(id))
    }

    /// In bytes, of any processor; a multiple of it may be where a page begins.
    private static let smallestPage = 4096

    /// The last byte of a regular file behind the mount, and where it is; nil of one that is empty or cannot be read.
    private func lastByte(of id: UInt64, _ node: NodePointer) -> (byte: UInt8, place: off_t)? {
        let pinned = tree.pin(node)
        defer { tree.unpin(id, node) }
        guard node.pointee.type == S_IFREG, pinned >= 0 else { return nil }
        let opened = clinux_reopen(pinned, O_RDONLY | O_NONBLOCK)
        guard opened >= 0 else { return nil }
        let file = FileDescriptor(owning: opened)
        // No program has read anything. A user's daemon may that of the user's own files.
        _ = clinux_keep_access_time(file.number)
        var status = FileStatus()
        guard clinux_statx(file.number, nil, &status) == 0, status.st.st_size > 0 else { return nil }
        var byte: UInt8 = 0
        let place = status.st.st_size - 1
        return pread(file.number, &byte, 1, place) == 1 ? (byte, place) : nil
    }

    /// By what the kernel is made to forget what others change beside the mount: nil where nothing does, `directories` or `names` otherwise.
    public func hostChangeMeans(of scope: Scope) -> ChangeWatch.Means? {
        ChangeWatch.Means(rawValue: scope.nodes.watchMeans.load(ordering: .relaxed))
    }

    /// Whether the kernel keeps anything that has to be forgotten then.
    public var keepsContents: Bool { hostWatch != nil }

    /// Whether changes that are made beside the mount show when the kernel has forgotten what it knows, and nothing makes it forget: its filesystem, or this user, cannot be watched.
    public func hasUntoldChanges(_ scope: Scope) -> Bool { policy.writeBack && scope.nodes.watchMeans.load(ordering: .relaxed) == 0 }

    /// Whether a file may have been written to through the mount a moment ago, or is being.
    func isWrittenHere(_ id: UInt64) -> Bool {
        guard let node = tree.nodes.find(id) else { return false }
        return kernelOpens ? node.pointee.cachedOpens.writer != 0 : node.pointee.writers.load(ordering: .relaxed) > 0
    }
}
