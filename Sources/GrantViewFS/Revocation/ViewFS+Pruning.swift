import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

// Makes the kernel evict unused nodes of a withdrawn scope. Without OPEN requests each known node
// counts as open and costs several notifications, but the kernel knows which are unused.
extension ViewFS {
    /// How long to wait for the kernel, which itself waits for running reads.
    private static let pruningMicroseconds = 2_000_000
    /// Nanoseconds without a FORGET after which the other nodes count as used.
    ///
    /// A later FORGET does no harm.
    private static let quietNanoseconds: Int64 = 3_000_000
    private static let restMicroseconds: UInt32 = 200

    /// Makes the kernel evict the unused nodes of a scope, and waits for its FORGETs.
    ///
    /// Does nothing before Linux 6.18 and for a few nodes.
    ///
    /// Evicted nodes do not return, because behind a closed gate no name is found. Called by a
    /// thread that serves no requests.
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

    /// Delays a worker that has handled a FORGET for a moment, while thousands are expected.
    ///
    /// The kernel wakes a reader for each FORGET unless no reader is idle, and that costs as much
    /// as all other work. After the delay all FORGETs that have arrived are read together.
    @inline(__always)
    func throttleForget() {
        if prunings.load(ordering: .relaxed) > 0 { usleep(Self.restMicroseconds) }
    }

    /// A pruning that several threads carry out together.
    ///
    /// The caller that waits for them may leave before they end.
    private final class Pruning: Sendable {
        private let nodes: [UInt64]
        private let notifier: Notifier
        /// The first node that no thread has taken yet.
        private let place = Atomic<Int>(0)

        /// The number of nodes in one notification: as many as the kernel takes at once under its
        /// lock.
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
