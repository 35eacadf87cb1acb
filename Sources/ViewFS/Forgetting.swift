import FUSEKit
import Glibc
import LinuxFS
import ViewTree

/// Makes the kernel forget the data of nodes, so that one for which it has to wait costs no other.
///
/// An invalidation of data waits for each page that somebody has locked. No program can keep a page of a regular file locked without a request
/// that the daemon has in its hands; but the kernel copies entries of a cached listing with the listing's page locked (fs/fuse/readdir.c,
/// fuse_readdir_cached), to memory that may belong to a filesystem of the program's own, which never answers. An invalidation of attributes waits
/// for nobody (fs/fuse/inode.c, fuse_reverse_inval_inode) and is not made here.
final class Forgetting: Sendable {
    struct Step: Sendable {
        let node: UInt64
        /// Only if somebody has it open for writing by then.
        var ifWritten = false
    }

    private let calls: LeavableCalls<Step>

    /// So many threads wait for pages of one scope at the most, and of all together: what is beyond is said not to be forgotten, and tried for later.
    static let limit = 64
    private static let bound = LeavableBound(limit: 256)
    /// How long an invalidation is waited for before others go on beside it. A file of a gigabyte takes 0.2 s.
    private static let patience: Int64 = 50_000_000

    init(_ view: ViewFS, _ notifier: Notifier, limit: Int = limit) {
        // A regular file's pages wait for nobody but us.
        calls = LeavableCalls(limit: limit, bound: Self.bound, mayWait: { view.isDirectory($0.node) }) { step in
            if step.ifWritten, !view.isOpenForWriting(step.node) { return }
            _ = notifier.forgetData(NodeID(step.node))
        }
    }

    func add(_ steps: [Step]) { calls.add(steps) }
    func add(_ nodes: [UInt64]) { calls.add(nodes.map { Step(node: $0) }) }

    /// To be called again and again by who waits.
    func look() { calls.leave(after: Self.patience) }

    /// To be called by who waits and can wait for a file to be forgotten: where no more threads can be made, it is done here.
    func help() { calls.help() }

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
    func forgetAll(_ scope: Scope, _ notifier: Notifier, _ forgetting: Forgetting) -> UInt64 {
        let nodes = scope.nodes.ids
        scope.progress.withLock { $0 = ClosingProgress(stage: .forgetting, total: UInt64(truncatingIfNeeded: nodes.count)) }
        var (closed, open, directories): ([UInt64], [UInt64], [UInt64]) = ([], [], [])
        for node in nodes where isDirectory(node) {
            directories.append(node)
            _ = notifier.forgetAttributes(NodeID(node))
        }
        for node in nodes where !isDirectory(node) {
            // Of a file that nobody has open data and attributes go in one notification. The others' data comes when the attributes of all are gone.
            if isOpen(node) {
                open.append(node)
                _ = notifier.forgetAttributes(NodeID(node))
            } else {
                closed.append(node)
            }
        }
        let written = open.map { Forgetting.Step(node: $0, ifWritten: true) }
        forgetting.add(closed)
        forgetting.add(written)
        forgetting.add(open)
        // The kernel does not look whether its own invalidation succeeded: a page made dirty through a pin survives one pass.
        forgetting.add(written)
        forgetting.add(directories)
        return UInt64(truncatingIfNeeded: nodes.count)
    }

    /// Waits until the kernel has forgotten, or until all that is left waits for locks that are not ours.
    func follow(_ forgetting: Forgetting, _ scope: Scope) {
        var turn: UInt32 = 10
        var (seen, since) = (forgetting.finished, Clock.monotonic)
        while forgetting.isUnderWay, Clock.monotonic - since < Self.standstill {
            usleep(turn)
            turn = min(turn * 2, 500)
            forgetting.look()
            forgetting.help()
            let finished = forgetting.finished
            if finished != seen { (seen, since) = (finished, Clock.monotonic) }
            scope.progress.withLock { progress in
                guard let total = progress?.total else { return }
                progress?.done = min(finished, total)
            }
        }
        // A large file may have been left behind, too.
        wait(upTo: Self.lastFilesMicroseconds) {
            forgetting.look()
            forgetting.help()
            return forgetting.isDone
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
