import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Drops the pages of files that no invalidation drops, as they were dirtied through pins when nobody had the file open for writing
/// (docs/decisions/pinned-pages.md).
///
/// First by a writer of this daemon's own: see `OwnWriters`. Where none can be had, the pages are overwritten with zeros: they may
/// stay, and show nothing. So it is only for nodes of which nothing is written back any more, and which are never used again.
///
/// Locking: its own, for a moment; never during a call that waits.
final class PinnedPages: Sendable {
    private enum Root {
        case untried
        case opening
        case open(OwnRoot)
        case none
    }

    private let view: ViewFS
    private let scope: ScopeNodes
    private let notifier: Notifier
    private let root = Lock(Root.untried)
    /// How many files are not done.
    private let left: Atomic<Int>
    /// How many bytes may still be overwritten: that costs time (0.2 s for all of them), whether there are pages or not.
    private let budget = Atomic<Int>(256 << 20)

    /// How often a file is invalidated: where there is no writer one pass takes the dirt from a page, and the next one the page, unless
    /// it gets dirty again in between.
    private static let passes = 3
    private static let lastPasses = 16
    /// What is overwritten by one call, in bytes.
    private static let chunk = 1 << 20
    /// Of a file whose size is not known, in bytes.
    private static let overwrittenOfUnknown = 1 << 20

    /// `files`: how many of `scope` `drop` is called for.
    init(_ view: ViewFS, _ scope: ScopeNodes, _ notifier: Notifier, files: Int) {
        (self.view, self.scope, self.notifier) = (view, scope, notifier)
        left = Atomic(files)
    }

    /// Drops the pages of a file. Blocks while the daemon's workers are busy.
    func drop(_ node: UInt64) {
        defer {
            // It keeps the mount busy.
            if left.wrappingSubtract(1, ordering: .sequentiallyConsistent).newValue == 0 { root.withLock { $0 = .none } }
        }
        for _ in 0..<Self.passes { if notifier.invalidateData(NodeID(node)) == -ENOENT { return } }
        if let root = openRoot() {
            let writesBack = view.policy.writeBack
            if view.ownWriters.invalidate(node, generation: view.generation, root, notifier, writesBack: writesBack) { return }
        }
        overwrite(node)
        // Nearly always that drops them after all.
        for _ in 0..<Self.lastPasses { _ = notifier.invalidateData(NodeID(node)) }
    }

    /// nil where it cannot be opened, or another thread hangs in that.
    private func openRoot() -> OwnRoot? {
        let isFirst = root.withLock { root in
            guard case .untried = root else { return false }
            root = .opening
            return true
        }
        if isFirst {
            let opened = view.ownWriters.openRoot()
            root.withLock { $0 = opened.map { .open($0) } ?? .none }
        }
        return root.withLock { root in
            if case .open(let opened) = root { return opened }
            return nil
        }
    }

    /// Overwrites what the kernel has of a file (fs/fuse/dev.c, fuse_notify_store), as far as the budget goes.
    private func overwrite(_ node: UInt64) {
        let bytes = size(of: node) ?? Self.overwrittenOfUnknown
        guard budget.wrappingSubtract(bytes, ordering: .relaxed).newValue >= 0 else {
            budget.wrappingAdd(bytes, ordering: .relaxed)
            return
        }
        for place in stride(from: 0, to: bytes, by: Self.chunk) {
            let length = min(Self.chunk, bytes - place)
            if notifier.storeZeros(length, at: place, of: NodeID(node)) != 0 { return }
            // What was not there before is there now.
            _ = notifier.invalidateData(NodeID(node), at: place, length: length)
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
