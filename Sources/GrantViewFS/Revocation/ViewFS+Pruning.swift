import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

// Where nobody says what is open, all that a withdrawn scope knows has to be taken for open, and costs several notifications each. The kernel knows better: it lets go of what nobody uses.
extension ViewFS {
    /// So long the kernel is waited for: it waits itself for reads that are under way.
    private static let pruningMicroseconds = 2_000_000
    /// When no FORGET has come for so long, the rest is taken for used. One that comes later does no harm.
    private static let quietNanoseconds: Int64 = 3_000_000
    private static let restMicroseconds: UInt32 = 200

    /// Has the kernel let go of the nodes of a scope that nobody uses, and waits for it to say so. Where it cannot (before Linux 6.18), and for a few, does nothing.
    ///
    /// What went does not come back: behind a gate that is closed no name is found. Called by a thread that serves no requests.
    func prune(_ scope: Scope, _ notifier: Notifier) {
        let known = scope.nodes.ids
        guard known.count >= prunedFrom, notifier.prune([]) == 0 else { return }
        prunings.wrappingAdd(1, ordering: .relaxed)
        defer { prunings.wrappingSubtract(1, ordering: .relaxed) }
        // What lies below first: a directory that was found later lies deeper, more often than not.
        let pruning = Pruning(known.filter { !isDirectory($0) } + known.filter(isDirectory).sorted(by: >), notifier)
        let tasks = (0..<pruning.threads).map { _ in BackgroundTask(mayHang: true) { pruning.carryOut() } }
        wait(upTo: Self.pruningMicroseconds) { tasks.allSatisfy(\.isDone) }
        pruning.abandon()
        var (left, since) = (scope.nodes.count, Clock.monotonic)
        wait(upTo: Self.pruningMicroseconds) {
            let count = scope.nodes.count
            if count != left { (left, since) = (count, Clock.monotonic) }
            return Clock.monotonic - since > Self.quietNanoseconds
        }
    }

    /// Who has just forgotten something waits a moment, while thousands are to be: the kernel wakes a reader for each, which costs it as much as the rest, unless nobody waits for requests; and
    /// what has come by then is read at once.
    @inline(__always)
    func throttleForget() {
        if prunings.load(ordering: .relaxed) > 0 { usleep(Self.restMicroseconds) }
    }

    /// What some threads do together, and who waits for them may leave.
    private final class Pruning: Sendable {
        private let nodes: [UInt64]
        private let notifier: Notifier
        /// Where nobody has begun yet.
        private let place = Atomic<Int>(0)

        /// So many nodes go in one notification: as many as the kernel takes under its lock at once.
        private static let atOnce = 512
        /// One thread for fewer.
        private static let many = 10_000

        init(_ nodes: [UInt64], _ notifier: Notifier) { (self.nodes, self.notifier) = (nodes, notifier) }

        var threads: Int { nodes.count < Self.many ? 1 : 2 }

        func carryOut() {
            while true {
                let begin = place.wrappingAdd(Self.atOnce, ordering: .relaxed).oldValue
                guard begin < nodes.count, notifier.prune(nodes[begin..<min(begin + Self.atOnce, nodes.count)]) == 0 else { return }
            }
        }

        func abandon() { place.store(nodes.count, ordering: .relaxed) }
    }
}
