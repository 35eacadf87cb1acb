import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Notifications about changes on the host.
extension ViewFS {
    /// Makes the kernel read a regular file that was changed on the host.
    ///
    /// Needed if it trusts its own sizes and times (write-back). Data that programs here wrote and
    /// the kernel still holds is written back first, over the change.
    ///
    /// An unused file is evicted whole, so the next open sees its size and times. For a file in use
    /// the kernel takes neither a smaller size nor other times. New contents and appended data
    /// show.
    ///
    /// Waits for write-back, so a thread that may be abandoned calls it.
    func takeHostChange(of id: UInt64, _ notifier: Notifier) {
        _ = notifier.prune([id])
        takeData(of: id, notifier)
    }

    /// Drops a regular file's cached data, and reports data appended on the host.
    ///
    /// Some calls use the kernel's size without a request: sendfile(2), splice(2) and
    /// copy_file_range(2). If the kernel trusts its own sizes, every call does.
    func takeData(of id: UInt64, _ notifier: Notifier) {
        guard let scope = tree.nodes.find(id)?.pointee.scope, let nodes = tree.scope(scope) else {
            _ = notifier.invalidateData(NodeID(id))
            return
        }
        let size = { [self] () -> off_t? in
            // In this order: pages that are read after the invalidation have all bytes of that
            // size.
            let size = tree.withLive(id, in: nodes, { hostSize(of: id, $0) }) ?? nil
            InjectedFault.stop(at: "sized")
            return notifier.invalidateData(NodeID(id)) == 0 ? size : nil
        }
        lengthenings.lengthen(id, to: size) { _ = notifier.lengthen(NodeID(id), to: $0) }
        InjectedFault.stop(at: "lengthened")
    }

    /// The size of a regular file behind the mount.
    private func hostSize(of id: UInt64, _ node: NodePointer) -> off_t? {
        let pinned = tree.pin(node)
        defer { tree.unpin(id, node) }
        var status = FileStatus()
        guard node.pointee.type == S_IFREG, pinned >= 0, clinux_statx(pinned, nil, &status) == 0 else { return nil }
        return status.st.st_size
    }

    /// How changes on the host are noticed: `directories` or `names`. Returns nil if they are not.
    public func hostChangeMeans(of scope: Scope) -> ChangeWatch.Means? {
        ChangeWatch.Means(rawValue: scope.nodes.watchMeans.load(ordering: .relaxed))
    }

    /// Whether the kernel caches anything that a host change must invalidate.
    public var keepsContents: Bool { policy.timeout > 0 }

    /// Whether changes on the host show only when the kernel drops its caches.
    ///
    /// True if the filesystem cannot be watched, or not by this user.
    public func hasUntoldChanges(_ scope: Scope) -> Bool { policy.writeBack && scope.nodes.watchMeans.load(ordering: .relaxed) == 0 }

    /// Whether a file is being written through the mount, or was a moment ago.
    func isWrittenHere(_ id: UInt64) -> Bool {
        guard let node = tree.nodes.find(id) else { return false }
        return kernelOpens ? node.pointee.cachedOpens.writer != 0 : node.pointee.writers.load(ordering: .relaxed) > 0
    }

    /// Watches the directory of a document on the host.
    ///
    /// It differs from the directory that the document's scope shows.
    func watchPlace(ofDocumentIn nodes: ScopeNodes) {
        let id = nodes.documentRoot.load(ordering: .relaxed)
        guard let entry = nodes.document?.entry, let root = tree.nodes.find(id) else { return }
        hostWatch.add(entry.directory.descriptor.number, as: id, root)
    }
}
