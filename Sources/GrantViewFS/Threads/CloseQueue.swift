import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Closes released files whose filesystem may take long to close them.
///
/// Each scope's files are closed in turn, on a thread that lives while there are files to close.
/// The kernel does not wait for it.
///
/// Locking: `state` is rank 2, held for a moment.
final class CloseQueue: @unchecked Sendable {
    // Sendable: `view` is set before the first request.
    nonisolated(unsafe) unowned var view: ViewFS!
    private let state = Lock(State())

    private struct State {
        var queues: [UInt32: [Released]] = [:]
        /// Scopes that have a thread.
        var busy: Set<UInt32> = []
    }

    private struct Released {
        let handle: UInt64
        let node: UInt64
    }

    func close(_ handle: UInt64, of node: UInt64, in scope: UInt32) {
        let isFirst = state.withLock { state -> Bool in
            state.queues[scope, default: []].append(Released(handle: handle, node: node))
            return state.busy.insert(scope).inserted
        }
        if isFirst { start(scope) }
    }

    /// Retries scopes for which no thread could be made. Returns whether any is left.
    func poll() -> Bool {
        let left = state.withLock { state -> [UInt32] in
            let left = state.queues.keys.filter { !state.busy.contains($0) }
            state.busy.formUnion(left)
            return left
        }
        for scope in left { start(scope) }
        return state.withLock { state in state.queues.keys.contains { !state.busy.contains($0) } }
    }

    private func start(_ scope: UInt32) {
        do throws(Errno) {
            try WorkerThread.start("grantfs-close") { [self] in
                // A new thread inherits the identity of the worker that starts it.
                Identity.resetOnThisThread()
                while view.pauseGate.run({
                    guard let next = next(of: scope) else { return false }
                    view.closeReleased(next.handle, of: NodeID(next.node))
                    return true
                }) {}
            }.detach()
        } catch {
            _ = state.withLock { $0.busy.remove(scope) }
            view.session?.wakeMonitor()
        }
    }

    var isIdle: Bool { state.withLock { $0.queues.isEmpty && $0.busy.isEmpty } }

    private func next(of scope: UInt32) -> Released? {
        state.withLock { state in
            guard var queue = state.queues[scope] else {
                state.busy.remove(scope)
                return nil
            }
            // The last one first: the order does not matter.
            let next = queue.removeLast()
            state.queues[scope] = queue.isEmpty ? nil : queue
            return next
        }
    }
}
