import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Replies of a withdrawn scope that the kernel processes after it was told to invalidate.
///
/// They were sent before the gate was shut. The thread that waits for a reply processes it, once it
/// gets a processor (docs/decisions/requests.md).
///
/// Locking: its own, rank 2, held while the kernel is notified of attributes. This notification
/// does not wait.
final class LateReplies: Sendable {
    private struct State {
        /// Nodes that a reply has named and the kernel does not know yet.
        var nodes: Set<UInt64> = []
        /// Threads that may still install attributes which an invalidation does not outdate.
        ///
        /// The value is their processor time when the gate was shut.
        var installers: [pid_t: Int64] = [:]
        var mayHaveInstalled = false
        /// The processor time that waiting threads had when they were first seen.
        var runtimes: [pid_t: Int64] = [:]
        /// Since when no reply can be late, by `Clock.monotonic`. 0 while one may be.
        var quietSince: Int64 = 0
    }

    private unowned let view: ViewFS
    private let scope: Scope
    private let notifier: Notifier
    private let state = Lock(State())

    /// Nanoseconds within which a thread woken by its reply is seen as runnable.
    private static let quietEnough: Int64 = 50_000_000

    /// Finds the threads. Call it when the gate is shut and no operation is inside.
    ///
    /// Call it before anything is invalidated.
    init(_ view: ViewFS, _ scope: Scope, _ notifier: Notifier) {
        (self.view, self.scope, self.notifier) = (view, scope, notifier)
        for caller in view.lastCalls.callers(in: scope.id.rawValue) where caller.installs && Self.isWaiting(caller.thread) {
            state.withLock { $0.installers[caller.thread] = clinux_other_runtime(caller.thread) }
        }
    }

    /// Adds nodes that the kernel did not know when it was told to invalidate them.
    ///
    /// Nodes that only an earlier daemon has handed out are skipped. If that daemon died before it
    /// sent its reply, the kernel never gets the node and sends no FORGET.
    func add(_ nodes: some Sequence<UInt64>) {
        let given = nodes.filter { (view.tree.nodes.find($0)?.pointee.found.load(ordering: .relaxed) ?? 0) != 0 }
        state.withLock { $0.nodes.formUnion(given) }
    }

    /// Whether a thread may have a reply that it has not processed.
    ///
    /// A sleeping thread has processed its reply, because it does not wait between the reply and
    /// the return.
    private static func isWaiting(_ thread: pid_t) -> Bool { !StarvedThreads.waiting([thread]).isEmpty }

    /// Invalidates late replies. Returns whether none can be left.
    func poll() -> Bool {
        state.withLock { state in
            if state.nodes.isEmpty, state.installers.isEmpty { return true }
            // With its mount the kernel has dropped everything, and sends no FORGET.
            if view.session?.hasEnded != false || notifier.invalidateAttributes(.root) == -ENOENT {
                state = State()
                return true
            }
            pollInstallers(&state)
            var isAnyGiven = false
            state.nodes = state.nodes.filter { id in
                if notifier.invalidateAttributes(NodeID(id)) != -ENOENT { return false }
                // Otherwise the kernel has evicted the inode, and its FORGET is on the way.
                guard let node = view.tree.nodes.find(id) else { return false }
                let count = node.pointee.lookupCount, own = countOfScope(id)
                // Calls that the daemon makes by itself, and that may hang, count the node and pin
                // it.
                if count > own + node.pointee.pins { isAnyGiven = true }
                return count > own
            }
            if state.nodes.isEmpty { return state.installers.isEmpty }
            // A reply is late only while the thread that gets it waits for a processor.
            let now = Clock.monotonic
            let isQuiet = !isAnyGiven || view.lastCalls.callers(in: scope.id.rawValue).allSatisfy { !mayHaveReply($0.thread, &state) }
            state.quietSince = isQuiet ? (state.quietSince == 0 ? now : state.quietSince) : 0
            return isQuiet && now - state.quietSince > Self.quietEnough && state.installers.isEmpty
        }
    }

    /// Whether a thread may have a reply from before the gate was shut.
    ///
    /// A running thread processes it within `StarvedThreads.enoughRuntime`.
    private func mayHaveReply(_ thread: pid_t, _ state: inout State) -> Bool {
        guard Self.isWaiting(thread) else { return false }
        let used = clinux_other_runtime(thread)
        let first = state.runtimes[thread] ?? used
        state.runtimes[thread] = first
        return used < 0 || used - first < StarvedThreads.enoughRuntime
    }

    /// How often the scope itself counts a node: as its root, and as the file that it shows.
    private func countOfScope(_ id: UInt64) -> UInt64 {
        (id == scope.rootNode ? 1 : 0) + (scope.nodes.document?.node?.id == id ? 1 : 0)
    }

    private func pollInstallers(_ state: inout State) {
        if state.installers.isEmpty { return }
        let current = Set(view.lastCalls.callers(in: scope.id.rawValue).filter(\.installs).map(\.thread))
        let count = state.installers.count
        state.installers = state.installers.filter { thread, runtime in
            guard current.contains(thread), Self.isWaiting(thread) else { return false }
            let now = clinux_other_runtime(thread)
            return runtime < 0 || now < 0 || now - runtime < StarvedThreads.enoughRuntime
        }
        if state.installers.count < count { state.mayHaveInstalled = true }
        guard state.installers.isEmpty, state.mayHaveInstalled else { return }
        state.mayHaveInstalled = false
        for id in scope.nodes.ids where notifier.invalidateAttributes(NodeID(id)) == -ENOENT { state.nodes.insert(id) }
    }

    /// Nodes that a late reply may still install, unless `poll` has returned true.
    var nodes: [UInt64] { state.withLock { Array($0.nodes) } }
}
