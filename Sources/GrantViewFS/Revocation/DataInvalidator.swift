import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Invalidates the data of nodes in the kernel, so that one invalidation that blocks holds up no other.
///
/// An invalidation of data waits for every locked page. A page of a regular file is locked for a READ or WRITE until the thread that
/// asked for it has processed the reply, which can wait for a processor: such threads are given one (`StarvedThreads`). And the kernel
/// copies entries of a cached listing with the listing's page locked (fs/fuse/readdir.c, fuse_readdir_cached), to memory that may
/// belong to a filesystem of the program's own, which never answers. Entries of a READDIR it copies with the directory's lock held.
/// An invalidation of attributes waits for nobody (fs/fuse/inode.c, fuse_reverse_inval_inode) and is not done here.
final class DataInvalidator: Sendable {
    struct Step: Sendable {
        let node: UInt64
        /// Only if the file is open for writing by then.
        var ifWritten = false
        /// Also those pages that an invalidation does not drop.
        var pinnedPages: PinnedPages?
        /// Only waits for listings of the directory that the kernel is copying to programs.
        var isListing = false
    }

    private unowned let view: ViewFS
    private let calls: AbandonableCalls<Step>
    /// Nodes that the kernel did not know when they were invalidated (ENOENT).
    let unknown: Lock<[UInt64]>

    /// The limit of threads that block on pages of one scope, and (`bound`) of all scopes together. What exceeds it is reported as
    /// not invalidated, and retried later.
    static let limit = 64
    private static let bound = AbandonLimit(limit: 256)
    /// After so long programs are given the processor that may have to process a reply: nanoseconds.
    private static let unhurried: Int64 = 5_000_000
    /// How long an invalidation may take before others continue beside it: nanoseconds. A file of a gigabyte takes 0.2 s.
    private static let patience: Int64 = 50_000_000

    init(_ view: ViewFS, _ notifier: Notifier, limit: Int = limit) {
        let unknown = Lock<[UInt64]>([])
        self.unknown = unknown
        self.view = view
        // Pages of a regular file wait for nobody but this daemon.
        calls = AbandonableCalls(
            limit: limit, sharedLimit: Self.bound, mayBlock: { view.isDirectory($0.node) }
        ) { step in
            if step.ifWritten, !view.isOpenForWriting(step.node) { return }
            if let pinnedPages = step.pinnedPages { return pinnedPages.drop(step.node) }
            if step.isListing { return notifier.waitForListings(of: NodeID(step.node)) }
            if notifier.invalidateData(NodeID(step.node)) == -ENOENT { unknown.withLock { $0.append(step.node) } }
        }
    }

    func add(_ steps: [Step]) { calls.add(steps) }
    func add(_ nodes: [UInt64]) { calls.add(nodes.map { Step(node: $0) }) }

    /// Abandons calls that block, and has the threads run that hold them up. Call it repeatedly while waiting.
    func poll() {
        let blocked = calls.blocked(for: Self.unhurried)
        if !blocked.isEmpty { view.hastenCallers(in: Set(blocked.compactMap { view.tree.nodes.find($0.node)?.pointee.scope })) }
        calls.abandon(after: Self.patience)
    }

    /// Runs a call on this thread when no more threads can be made. Call it while waiting, if the caller can wait for a file's
    /// invalidation.
    func runInline() { calls.runInline() }

    var isDone: Bool { calls.isDone }
    /// False when everything that is left was abandoned.
    var isUnderWay: Bool { calls.isUnderWay }
    var finished: UInt64 { calls.finished }
    /// The nodes of which something may still be cached.
    var unfinished: Set<UInt64> { Set(calls.unfinished.map(\.node)) }
}

extension ViewFS {
    /// How long abandoned calls are waited for before a withdrawal reports what could not be invalidated.
    static let lastFilesMicroseconds = 500_000
    /// After so many nanoseconds without a finished node nobody waits any longer: there are not enough threads.
    private static let standstill: Int64 = 2_000_000_000

    /// Invalidates every node of a closed scope: attributes first, which wait for nobody, directories before files, so that no
    /// cached name leads further down; then data, that of directories last, because a program can keep a listing's page locked.
    /// Returns the number of nodes.
    ///
    /// `asked`: nodes whose attributes were invalidated since the gate was closed: an earlier reply does not bring them back
    /// (fs/fuse/inode.c, attr_version).
    func invalidateAll(_ scope: Scope, _ notifier: Notifier, _ invalidator: DataInvalidator, besides asked: Set<UInt64>) -> UInt64 {
        let nodes = scope.nodes.ids
        scope.progress.withLock { $0 = WithdrawalProgress(stage: .forgetting, total: UInt64(truncatingIfNeeded: nodes.count)) }
        var (closed, open, directories): ([UInt64], [UInt64], [UInt64]) = ([], [], [])
        for node in nodes where isDirectory(node) {
            directories.append(node)
            if !asked.contains(node) { _ = notifier.invalidateAttributes(NodeID(node)) }
        }
        for node in nodes where !isDirectory(node) {
            // For an unopened file one notification drops data and attributes. Data of open files is dropped when the attributes of
            // all are gone.
            if kernelOpens, !isOpenForWriting(node), !isLink(node) {
                // It has no pages.
                if !asked.contains(node), notifier.invalidateAttributes(NodeID(node)) == -ENOENT {
                    invalidator.unknown.withLock { $0.append(node) }
                }
            } else if isOpen(node) {
                open.append(node)
                _ = notifier.invalidateAttributes(NodeID(node))
            } else {
                closed.append(node)
            }
        }
        let written = open.map { DataInvalidator.Step(node: $0, ifWritten: true) }
        invalidator.add(closed)
        invalidator.add(written)
        invalidator.add(open)
        // The kernel does not check whether its own invalidation succeeded: a page dirtied through a pin survives one pass.
        invalidator.add(written)
        // Before the directories, of which programs can have so many wait that no more is begun.
        addPinnedPages(scope.nodes.ids, of: scope.nodes, notifier, invalidator)
        invalidator.add(directories)
        invalidator.add(directories.filter(isOpen).map { DataInvalidator.Step(node: $0, isListing: true) })
        return UInt64(truncatingIfNeeded: nodes.count)
    }

    /// From so many files on the kernel is asked first to evict those that nobody uses, where it can (Linux 6.18).
    private static let evictedFrom = 4
    /// Where the kernel opens files by itself, and cannot be asked that, more files than these are taken for unused: nearly all are,
    /// and each would cost some twenty calls.
    private static let pinnedAtMost = 4_096

    /// Adds the files of which pages may be left that nobody can write back. `ids`: nodes that are never used again.
    func addPinnedPages(_ ids: [UInt64], of scope: ScopeNodes, _ notifier: Notifier, _ invalidator: DataInvalidator) {
        let files = mayKeepPages(ids)
        if files.isEmpty { return }
        var evicts = false
        if kernelOpens, files.count >= Self.evictedFrom {
            evicts = notifier.prune([]) == 0
            if evicts {
                for start in stride(from: 0, to: files.count, by: 512) { _ = notifier.prune(files[start..<min(start + 512, files.count)]) }
            }
        }
        if kernelOpens, !evicts, files.count > Self.pinnedAtMost {
            // The next pass takes what the one before has taken the dirt from.
            for _ in 0..<2 { invalidator.add(files) }
            return
        }
        let pinnedPages = PinnedPages(self, scope, notifier)
        invalidator.add(files.map { DataInvalidator.Step(node: $0, pinnedPages: pinnedPages) })
    }

    /// Whether the node is a symbolic link, whose target the kernel caches as a file's data.
    private func isLink(_ id: UInt64) -> Bool { tree.nodes.find(id)?.pointee.type == S_IFLNK }

    /// Waits until everything is invalidated, or all that is left waits for locks that are not ours.
    func follow(_ invalidator: DataInvalidator, _ scope: Scope) {
        var backoff: UInt32 = 10
        var (seen, since) = (invalidator.finished, Clock.monotonic)
        while invalidator.isUnderWay, Clock.monotonic - since < Self.standstill {
            usleep(backoff)
            backoff = min(backoff * 2, 500)
            invalidator.poll()
            invalidator.runInline()
            let finished = invalidator.finished
            if finished != seen { (seen, since) = (finished, Clock.monotonic) }
            scope.progress.withLock { progress in
                guard let total = progress?.total else { return }
                progress?.done = min(finished, total)
            }
        }
        // A large file may have been abandoned, too.
        wait(upTo: Self.lastFilesMicroseconds) {
            invalidator.poll()
            invalidator.runInline()
            return invalidator.isDone
        }
    }

    /// The node's path below the granted directory, for people, as far as it is known without asking the filesystem.
    func placeName(_ id: UInt64, in scope: Scope) -> [UInt8] {
        guard let inode = tree.nodes.find(id)?.pointee.key.inode else { return [] }
        guard let whole = tree.knownPath(of: id, in: scope.nodes), let root = path(of: scope), whole.starts(with: root) else {
            return Array("inode \(inode)".utf8)
        }
        let rest = Array(whole.dropFirst(root.count).drop { $0 == UInt8(ascii: "/") })
        return rest.isEmpty ? [UInt8(ascii: ".")] : rest
    }
}
