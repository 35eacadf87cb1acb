import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Invalidates the data of nodes. An invalidation that blocks does not delay the others.
///
/// An invalidation of data waits for every locked page. Two kinds of pages stay locked for long:
/// - A page of a regular file is locked for a READ or WRITE until the requesting thread has
///   processed the reply. That thread may wait for a processor, so it is given one
///   (`StarvedThreads`).
/// - The kernel copies entries of a cached listing with the listing's page locked
///   (fs/fuse/readdir.c, fuse_readdir_cached). The target may be memory of a filesystem that the
///   program serves itself and that never responds.
///
/// Entries of a READDIR are copied with the directory's lock held. An invalidation of attributes
/// does not wait (fs/fuse/inode.c, fuse_reverse_inval_inode) and is not done here.
final class DataInvalidator: Sendable {
    struct Step: Sendable {
        let node: UInt64
        /// Only if the file is open for writing by then.
        var ifWritten = false
        /// Also drops the pages that an invalidation does not drop.
        var pinnedPages: PinnedPages?
        /// Then also waits for listings of the directory that the kernel is copying to programs.
        var awaitsListings = false
    }

    private unowned let view: ViewFS
    private let calls: AbandonableCalls<Step>
    /// Nodes that the kernel did not know when they were invalidated (ENOENT).
    let unknown: Lock<[UInt64]>

    /// The limit of threads that block on pages: of one scope, and (`bound`) of all scopes
    /// together.
    ///
    /// Steps beyond it are reported as not invalidated, and retried later.
    static let limit = 64
    private static let bound = AbandonLimit(limit: 256)
    /// Nanoseconds after which programs that may have to process a reply are given a processor.
    private static let unhurried: Int64 = 5_000_000
    /// Nanoseconds after which others continue beside a slow invalidation.
    ///
    /// A file of a gigabyte takes 0.2 s.
    private static let patience: Int64 = 50_000_000

    init(_ view: ViewFS, _ notifier: Notifier, limit: Int = limit) {
        let unknown = Lock<[UInt64]>([])
        self.unknown = unknown
        self.view = view
        // Pages of a regular file wait only for this daemon.
        calls = AbandonableCalls(
            limit: limit, sharedLimit: Self.bound, mayBlock: { view.isDirectory($0.node) }
        ) { step in
            if step.ifWritten, !view.isOpenForWriting(step.node) { return }
            if let pinnedPages = step.pinnedPages { return pinnedPages.drop(step.node) }
            if notifier.invalidateData(NodeID(step.node)) == -ENOENT {
                unknown.withLock { $0.append(step.node) }
            } else if step.awaitsListings {
                notifier.waitForListings(of: NodeID(step.node))
            }
        }
    }

    func add(_ steps: [Step]) { calls.add(steps) }
    func add(_ nodes: [UInt64]) { calls.add(nodes.map { Step(node: $0) }) }

    /// Abandons calls that block, and gives a processor to the threads that delay them.
    ///
    /// Call it repeatedly while waiting.
    func poll() {
        let blocked = calls.blocked(for: Self.unhurried)
        if !blocked.isEmpty { view.hastenCallers(in: Set(blocked.compactMap { view.tree.nodes.find($0.node)?.pointee.scope })) }
        calls.abandon(after: Self.patience)
    }

    /// Runs a call on this thread when no more threads can be made.
    ///
    /// Call it while waiting, if the caller can wait for a file's invalidation.
    func runInline() { calls.runInline() }

    var isDone: Bool { calls.isDone }
    /// It is false if all remaining calls were abandoned.
    var isUnderWay: Bool { calls.isUnderWay }
    var finished: UInt64 { calls.finished }
    /// The nodes of which something may still be cached.
    var unfinished: Set<UInt64> { Set(calls.unfinished.map(\.node)) }
    /// The nodes whose invalidation was begun and has not returned.
    var blocked: Set<UInt64> { Set(calls.blocked(for: 0).map(\.node)) }
    /// The directories among the unfinished ones, those first whose invalidation waits.
    var unfinishedDirectories: [UInt64] { calls.unfinished.map(\.node).filter { view.isDirectory($0) } }
}

extension ViewFS {
    /// Microseconds to wait for abandoned calls before a withdrawal reports their nodes.
    static let lastFilesMicroseconds = 500_000
    /// Nanoseconds without a finished node after which waiting ends: there are not enough threads.
    private static let standstill: Int64 = 2_000_000_000

    /// Invalidates every node of a closed scope, and returns the number of nodes.
    ///
    /// The order matters. Attributes come first, because they do not wait. Directories come before
    /// files, so that no cached name leads further down. Data follows, that of directories last,
    /// because a program can keep a listing's page locked.
    ///
    /// `asked`: nodes whose attributes were invalidated since the gate was closed. An earlier reply
    /// does not restore those (fs/fuse/inode.c, attr_version).
    func invalidateAll(_ scope: Scope, _ notifier: Notifier, _ invalidator: DataInvalidator, besides asked: Set<UInt64>) -> UInt64 {
        let nodes = scope.nodes.ids
        scope.progress.withLock { $0 = WithdrawalProgress(stage: .forgetting, total: UInt64(truncatingIfNeeded: nodes.count)) }
        var (closed, open, directories): ([UInt64], [UInt64], [UInt64]) = ([], [], [])
        for node in nodes where isDirectory(node) {
            directories.append(node)
            if !asked.contains(node) { _ = notifier.invalidateAttributes(NodeID(node)) }
        }
        for node in nodes where !isDirectory(node) {
            // For an unopened file one notification drops data and attributes. Data of open files
            // is dropped when the attributes of all are gone.
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
        // The kernel does not check whether its own invalidation succeeded: a page dirtied through
        // a pin survives one pass.
        invalidator.add(written)
        // Before the directories, of which programs can block so many that no further step begins.
        addPinnedPages(scope.nodes.ids, of: scope.nodes, notifier, invalidator)
        invalidator.add(directories.map { DataInvalidator.Step(node: $0, awaitsListings: isOpen($0)) })
        return UInt64(truncatingIfNeeded: nodes.count)
    }

    /// From this many files on the kernel is first asked to evict unused ones.
    ///
    /// Linux 6.18 and later can do that.
    private static let evictedFrom = 4
    /// The limit of files that are handled singly without eviction by the kernel.
    ///
    /// It applies if the kernel opens files by itself. Above it all files count as unused. Nearly
    /// all are, and each would cost about twenty calls.
    private static let pinnedAtMost = 4_096

    /// Adds the files that may have pages which can no longer be written back.
    ///
    /// `ids`: nodes that are never used again.
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
            // The first pass may only clean a dirty page. The second then drops it.
            for _ in 0..<2 { invalidator.add(files) }
            return
        }
        let pinnedPages = PinnedPages(self, scope, notifier)
        invalidator.add(files.map { DataInvalidator.Step(node: $0, pinnedPages: pinnedPages) })
    }

    /// Whether the node is a symbolic link. The kernel caches its target as data.
    private func isLink(_ id: UInt64) -> Bool { tree.nodes.find(id)?.pointee.type == S_IFLNK }

    /// Waits until all steps have finished, or wait only for locks of other programs.
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

    /// The node's path below the granted directory, for people.
    ///
    /// Makes no call to the filesystem. If the path is not known, returns the inode number.
    func placeName(_ id: UInt64, in scope: Scope) -> [UInt8] {
        guard let inode = tree.nodes.find(id)?.pointee.key.inode else { return [] }
        guard let whole = tree.knownPath(of: id, in: scope.nodes), let root = path(of: scope),
            MountTable.path(whole, isAtOrBelow: root)
        else {
            return Array("inode \(inode)".utf8)
        }
        let rest = Array(whole.dropFirst(root.count).drop { $0 == UInt8(ascii: "/") })
        return rest.isEmpty ? [UInt8(ascii: ".")] : rest
    }
}
