import CGrantSystem
import GrantCoordinator
import Glibc
import GrantSystem
import GrantViewTree

// Releases the descriptors of a withdrawn scope even if programs still have its files open, so that
// its filesystem can be unmounted.
extension ViewFS {
    /// Whether no descriptor of the scope is left.
    public func hasReleasedDescriptors(of scope: Scope) -> Bool { scope.releaseState.load(ordering: .acquiring) == .done }

    /// Begins to close the descriptors of a scope, on a thread of its own.
    ///
    /// Closing a file may wait for its filesystem. Does nothing while such a thread runs, or while
    /// an operation is inside. Then call it again.
    public func beginRelease(of scope: Scope) {
        guard isUnused(scope),
            scope.releaseState.compareExchange(expected: .notYet, desired: .underWay, ordering: .acquiringAndReleasing).exchanged
        else { return }
        _ = BackgroundTask(mayHang: true) { [self] in
            scope.releaseState.store(releaseDescriptors(of: scope) ? .done : .notYet, ordering: .releasing)
        }
    }

    /// Whether the scope is shut and no operation is inside. Once true, it stays true.
    ///
    /// The gate of a shut scope never opens again. An operation that is not seen inside now has
    /// been refused or will be (see `Coordinator`). An operation that hangs in the filesystem uses
    /// the descriptors, so nothing is closed before it has left.
    private func isUnused(_ scope: Scope) -> Bool {
        coordinator.gate(scope.id).pointee.refused.isSuperset(of: .shut) && coordinator.occupants(of: scope.id).isEmpty
    }

    /// Closes the descriptors. Returns whether none is left.
    private func releaseDescriptors(of scope: Scope) -> Bool {
        if kernelOpens { closeCached(of: scope.nodes) }
        // First the steps that free descriptor numbers, since one is needed below.
        scope.nodes.document?.releaseDescriptors()
        let nodesAreGone = tree.release(scope.nodes)
        locks.forget(scope.id)
        oplocks?.release(scope.id.rawValue)
        let nothing = clinux_open_nothing()
        guard nothing >= 0 else { return false }
        files.release(scope.id.rawValue, to: nothing)
        directories.release(scope.id.rawValue, to: nothing)
        _ = clinux_close(nothing)
        return nodesAreGone
    }
}
