import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Makes the kernel forget the data of nodes, so that one for which it has to wait costs no other.
///
/// An invalidation of data waits for each page that somebody has locked. No program can keep a page of a regular file locked without a request
/// that the daemon has in its hands; but the kernel copies entries of a cached listing with the listing's page locked (fs/fuse/readdir.c,
/// fuse_readdir_cached), to memory that may belong to a filesystem of the program's own, which never answers. An invalidation of attributes waits
/// for nobody (fs/fuse/inode.c, fuse_reverse_inval_inode) and is not made here.
final class DataInvalidator: Sendable {
    struct Step: Sendable {
        let node: UInt64
        /// Only if somebody has it open for writing by then.
        var ifWritten = false
    }

    private let calls: AbandonableCalls<Step>
    /// Nodes that the kernel did not know when it was told to forget them.
    let unknown: Lock<[UInt64]>

    /// So many threads wait for pages of one scope at the most, and of all together: what is beyond is said not to be forgotten, and tried for later.
    static let limit = 64
    private static let bound = AbandonLimit(limit: 256)
    /// How long an invalidation is waited for before others go on beside it. A file of a gigabyte takes 0.2 s.
    private static let patience: Int64 = 50_000_000

    init(_ view: ViewFS, _ notifier: Notifier, limit: Int = limit) {
        let unknown = Lock<[UInt64]>([])
        self.unknown = unknown
        // A regular file's pages wait for nobody but us.
        calls = AbandonableCalls(limit: limit, sharedLimit: Self.bound, mayBlock: { view.isDirectory($0.node) }) { step in
            if step.ifWritten, !view.isOpenForWriting(step.node) { return }
            if notifier.invalidateData(NodeID(step.node)) == -ENOENT { unknown.withLock { $0.append(step.node) } }
        }
    }

    func add(_ steps: [Step]) { calls.add(steps) }
    func add(_ nodes: [UInt64]) { calls.add(nodes.map { Step(node: $0) }) }

    /// To be called again and again by who waits.
    func poll() { calls.abandon(after: Self.patience) }

    /// To be called by who waits and can wait for a file to be forgotten: where no more threads can be made, it is done here.
    func runInline() { calls.runInline() }

    var isDone: Bool { calls.isDone }
    /// False when all that is left is what was left behind.
    var isUnderWay: Bool { calls.isUnderWay }
    var finished: UInt64 { calls.finished }
    /// The nodes of which something may be cached yet.
    var unfinished: Set<UInt64> { Set(calls.unfinished.map(\.node)) }
}

extension ViewFS {
    /// So long it is waited for what was left behind, before a withdrawal says that it could not be forgotten.
    static let lastFilesMicroseconds = 500_000
    /// Nanoseconds without a node forgotten after which nobody waits for more: there are not enough threads.
    private static let standstill: Int64 = 2_000_000_000

    /// Has the kernel forget every node of a closed scope: attributes first, which wait for nobody, directories before files, so that no cached name
    /// lets anybody further down; then data, that of directories last, because a program can keep a listing's page locked. Returns how many nodes.
    ///
    /// `asked`: of these the attributes have been forgotten since the gate was closed: an answer from before does not bring them back (fs/fuse/inode.c, attr_version).
    func invalidateAll(_ scope: Scope, _ notifier: Notifier, _ invalidator: DataInvalidator, besides asked: Set<UInt64>) -> UInt64 {
        let nodes = scope.nodes.ids
        scope.progress.withLock { $0 = ClosingProgress(stage: .forgetting, total: UInt64(truncatingIfNeeded: nodes.count)) }
        var (closed, open, directories): ([UInt64], [UInt64], [UInt64]) = ([], [], [])
        for node in nodes where isDirectory(node) {
            directories.append(node)
            if !asked.contains(node) { _ = notifier.invalidateAttributes(NodeID(node)) }
        }
        for node in nodes where !isDirectory(node) {
            // Of a file that nobody has open data and attributes go in one notification. The others' data comes when the attributes of all are gone.
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
        // The kernel does not look whether its own invalidation succeeded: a page made dirty through a pin survives one pass.
        invalidator.add(written)
        invalidator.add(directories)
        return UInt64(truncatingIfNeeded: nodes.count)
    }

    /// The kernel keeps what a link says as a file's data.
    private func isLink(_ id: UInt64) -> Bool { tree.nodes.find(id)?.pointee.type == S_IFLNK }

    /// Who was answered longer ago than that has long made use of it.
    static let lateNanoseconds: Int64 = 1_000_000_000
    /// So long it is waited for who was answered and has made no use of it yet: it has no processor.
    private static let lateMicroseconds = 200_000

    /// Has the kernel forget the attributes of files that it had not known when it was told to forget them. What a lookup was answered with is made use of by the thread that waits for it, as soon as
    /// that has a processor (fs/fuse/dir.c, fuse_lookup_name): until then there is no inode of which something could be forgotten (ENOENT), and afterwards its attributes are believed for their time.
    ///
    /// `since`: CLOCK_MONOTONIC in nanoseconds; what was found before that has an inode, or none any more.
    func invalidateLate(_ scope: Scope, _ notifier: Notifier, _ invalidator: DataInvalidator, since: Int64) {
        var late = invalidator.unknown.withLock { $0 }.filter { (tree.nodes.find($0)?.pointee.found.load(ordering: .relaxed) ?? 0) > since }
        wait(upTo: Self.lateMicroseconds) {
            late.removeAll { id in
                if notifier.invalidateAttributes(NodeID(id)) != -ENOENT { return true }
                // Or the kernel has let go of it, and says so soon. The scope counts its root itself.
                guard let node = tree.nodes.find(id) else { return true }
                return node.pointee.lookupCount <= (id == scope.rootNode ? 1 : 0)
            }
            return late.isEmpty
        }
    }

    /// Waits until the kernel has forgotten, or until all that is left waits for locks that are not ours.
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
        // A large file may have been left behind, too.
        wait(upTo: Self.lastFilesMicroseconds) {
            invalidator.poll()
            invalidator.runInline()
            return invalidator.isDone
        }
    }

    /// A node's name below the granted directory, as far as it is known without asking the filesystem.
    func placeName(_ id: UInt64, in scope: Scope) -> [UInt8] {
        guard let inode = tree.nodes.find(id)?.pointee.key.inode else { return [] }
        guard let whole = tree.knownPath(of: id, in: scope.nodes), let root = path(of: scope), whole.starts(with: root) else {
            return Array("inode \(inode)".utf8)
        }
        let rest = Array(whole.dropFirst(root.count).drop { $0 == UInt8(ascii: "/") })
        return rest.isEmpty ? [UInt8(ascii: ".")] : rest
    }
}
