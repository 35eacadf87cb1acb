import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

// Has the kernel evict the unused nodes of a withdrawn scope. Where no request tells what is open, every node that the scope knows
// counts as open, and costs several notifications. The kernel knows better: it evicts what nobody uses.
extension ViewFS {
    /// How long the kernel is waited for: it waits itself for reads that are under way.
    private static let pruningMicroseconds = 2_000_000
    /// After so long without a FORGET the rest counts as used. A FORGET that comes later does no harm.
    private static let quietNanoseconds: Int64 = 3_000_000
    private static let restMicroseconds: UInt32 = 200

    /// Makes the kernel evict the nodes of a scope that nobody uses, and waits for its FORGETs. Where it cannot (before Linux
    /// 6.18), and for a few nodes, does nothing.
    ///
    /// Evicted nodes do not come back: behind a closed gate no name is found. Called by a thread that serves no requests.
    func prune(_ scope: Scope, _ notifier: Notifier) {
        let known = scope.nodes.ids
        guard known.count >= prunedFrom, notifier.prune([]) == 0 else { return }
        prunings.wrappingAdd(1, ordering: .relaxed)
        defer { prunings.wrappingSubtract(1, ordering: .relaxed) }
        // Deeper nodes first: a directory that was found later usually lies deeper.
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

    /// Delays a worker that has handled a FORGET for a moment, while thousands are expected. The kernel wakes a reader for each
    /// one, which costs it as much as all the rest, unless no reader is idle; what has arrived by then is read at once.
    @inline(__always)
    func throttleForget() {
        if prunings.load(ordering: .relaxed) > 0 { usleep(Self.restMicroseconds) }
    }

    /// A pruning that several threads carry out together. Who waits for them may leave before they end.
    private final class Pruning: Sendable {
        private let nodes: [UInt64]
        private let notifier: Notifier
        /// The first node that no thread has taken yet.
        private let place = Atomic<Int>(0)

        /// How many nodes go in one notification: as many as the kernel takes at once under its lock.
        private static let atOnce = 512
        /// For fewer nodes one thread is used.
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
