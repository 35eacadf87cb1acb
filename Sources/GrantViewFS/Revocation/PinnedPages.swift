import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Drops the pages of files that no invalidation drops, as they were dirtied through pins when nobody had the file open for writing
/// (docs/decisions/late-replies.md).
///
/// They are overwritten with zeros: one that stays shows nothing. Pages that were dropped stay so, as a program that reads them is to be
/// refused, and not to be given zeros. It is only for nodes of which nothing is written back any more, and which are never used again.
final class PinnedPages: Sendable {
    private let view: ViewFS
    private let scope: ScopeNodes
    private let notifier: Notifier
    /// How many bytes may still be overwritten: that costs time (0.25 s for all of them), whether there are pages or not.
    private let budget = Atomic<Int>(256 << 20)

    /// How often a file is invalidated: where there is no writer one pass takes the dirt from a page, and the next one the page, unless
    /// it gets dirty again in between.
    private static let passes = 3
    private static let lastPasses = 16
    /// How much is overwritten before the pages that were made for it are dropped, in bytes.
    private static let step = 1 << 20
    /// How much of a file whose size is not known is overwritten, in bytes.
    private static let unknownSize = 1 << 20

    init(_ view: ViewFS, _ scope: ScopeNodes, _ notifier: Notifier) {
        (self.view, self.scope, self.notifier) = (view, scope, notifier)
    }

    /// Drops the pages of a file, or overwrites them.
    func drop(_ node: UInt64) {
        for _ in 0..<Self.passes { if notifier.invalidateData(NodeID(node)) == -ENOENT { return } }
        overwrite(node)
        // Nearly always that drops them after all.
        for _ in 0..<Self.lastPasses { _ = notifier.invalidateData(NodeID(node)) }
    }

    /// Overwrites what the kernel has of a file (fs/fuse/dev.c, fuse_notify_store), as far as the budget goes.
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
            // Where there was no page there is one without data.
            _ = notifier.invalidateData(NodeID(node), at: place, length: length)
        }
    }

    /// The result of a notification. It is repeated as long as there is no memory, for which the withdrawal is not confirmed.
    private func afterRetries(_ notification: () -> Int32) -> Int32 {
        while true {
            let result = notification()
            if result != -ENOMEM { return result }
            ThreadSleep.milliseconds(10)
        }
    }

    /// The size that the host's kernel knows, in bytes; its filesystem, which may hang, is not asked.
    private func size(of node: UInt64) -> Int? {
        view.tree.withHeldDescriptor(of: node, in: scope) { descriptor in
            var known = FileStatus()
            return clinux_statx_known(descriptor, &known) == 0 ? known.st.st_size : nil
        } ?? nil
    }
}

extension ViewFS {
    /// The files that somebody may have open, and of which the kernel may have pages that nobody can write back.
    func mayKeepPages(_ ids: [UInt64]) -> [UInt64] {
        ids.filter { id in
            guard let node = tree.nodes.find(id), node.pointee.type == S_IFREG else { return false }
            if kernelOpens { return node.pointee.mayHavePages.load(ordering: .relaxed) }
            // Only who maps a file for writing can have its pages pinned so that they get dirty.
            return node.pointee.openers.load(ordering: .acquiring) > 0 && node.pointee.wasOpenForWriting.load(ordering: .acquiring)
        }
    }
}
