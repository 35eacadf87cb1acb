import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Drops pages of files that no invalidation drops, because they were dirtied through pins.
///
/// This happens when no process has the file open for writing (docs/decisions/requests.md).
///
/// The pages are overwritten with zeros, so that a page that stays shows no data. Dropped pages
/// stay dropped, because a program that reads them must get an error and no zeros. Use it only for
/// nodes that are never used again, and of which nothing is written back any more.
final class PinnedPages: Sendable {
    private let view: ViewFS
    private let scope: ScopeNodes
    private let notifier: Notifier
    /// How many bytes may still be overwritten.
    ///
    /// Overwriting all of them takes 0.25 s, whether there are pages or not.
    private let budget = Atomic<Int>(256 << 20)

    /// How often a file is invalidated.
    ///
    /// Without a writer one pass cleans a page, and the next pass drops it, unless it gets dirty
    /// again in between.
    private static let passes = 3
    private static let lastPasses = 16
    /// How many bytes are overwritten before the pages made for them are dropped.
    private static let step = 1 << 20
    /// How many bytes of a file of unknown size are overwritten.
    private static let unknownSize = 1 << 20

    init(_ view: ViewFS, _ scope: ScopeNodes, _ notifier: Notifier) {
        (self.view, self.scope, self.notifier) = (view, scope, notifier)
    }

    /// Drops the pages of a file, or overwrites them.
    func drop(_ node: UInt64) {
        for _ in 0..<Self.passes { if notifier.invalidateData(NodeID(node)) == -ENOENT { return } }
        overwrite(node)
        // After overwriting, this nearly always drops the pages.
        for _ in 0..<Self.lastPasses { _ = notifier.invalidateData(NodeID(node)) }
    }

    /// Overwrites the cached pages of a file (fs/fuse/dev.c, fuse_notify_store), within the budget.
    private func overwrite(_ node: UInt64) {
        let bytes = size(of: node) ?? Self.unknownSize
        guard budget.wrappingSubtract(bytes, ordering: .relaxed).newValue >= 0 else {
            budget.wrappingAdd(bytes, ordering: .relaxed)
            return
        }
        guard afterRetries({ notifier.obscureSize(NodeID(node)) }) == 0 else { return }
        for place in stride(from: 0, to: bytes, by: Self.step) {
            let length = min(Self.step, bytes - place)
            guard afterRetries({ notifier.overwriteCached(length, at: place, of: NodeID(node)) }) == 0 else { return }
            // If there was no page before, there is one without data now.
            _ = notifier.invalidateData(NodeID(node), at: place, length: length)
        }
    }

    /// The result of a notification, repeated while the kernel has no memory.
    ///
    /// Meanwhile the withdrawal is not confirmed.
    private func afterRetries(_ notification: () -> Int32) -> Int32 {
        while true {
            let result = notification()
            if result != -ENOMEM { return result }
            ThreadSleep.milliseconds(10)
        }
    }

    /// The size that the host's kernel has cached, in bytes. Its filesystem may hang and is not
    /// called.
    private func size(of node: UInt64) -> Int? {
        view.tree.withHeldDescriptor(of: node, in: scope) { descriptor in
            var known = FileStatus()
            return clinux_statx_known(descriptor, &known) == 0 ? known.st.st_size : nil
        } ?? nil
    }
}

extension ViewFS {
    /// The files that may be open with pages that no process can write back.
    func mayKeepPages(_ ids: [UInt64]) -> [UInt64] {
        ids.filter { id in
            guard let node = tree.nodes.find(id), node.pointee.type == S_IFREG else { return false }
            if kernelOpens { return node.pointee.mayHavePages.load(ordering: .relaxed) }
            // Only a process that maps a file for writing can have its pages pinned so that they
            // get dirty.
            return node.pointee.openers.load(ordering: .acquiring) > 0 && node.pointee.wasOpenForWriting.load(ordering: .acquiring)
        }
    }
}
