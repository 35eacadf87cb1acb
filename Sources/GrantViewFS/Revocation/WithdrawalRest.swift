import GrantCoordinator
import GrantFUSE
import GrantSystem
import GrantViewTree

/// The work that a withdrawal waits for before it is confirmed.
///
/// Everything that does not depend on programs is already in force.
struct WithdrawalRest: Sendable {
    /// Pages that the kernel still has to drop.
    let invalidator: DataInvalidator
    /// Late replies. It is nil for a narrowing, after which attributes may still be read.
    let late: LateReplies?
    let changes: ChangesUnderWay

    /// Microseconds before a withdrawal reports late replies, and changes that no caller waits for.
    static let microseconds = 200_000

    /// Advances all remaining work. Returns whether none is left.
    func poll() -> Bool {
        invalidator.poll()
        // Every part is polled, without regard to the results of the others.
        let isLateDone = late?.poll() ?? true
        let areChangesDone = changes.poll()
        return invalidator.isDone && isLateDone && areChangesDone
    }

    /// The nodes of which something may still be cached, blocked invalidations first.
    ///
    /// While some are blocked, those that wait behind them are left out, because nothing holds them.
    /// Entries of a directory that is among those are left out, because the kernel gets to know them
    /// when it has copied the listing.
    func nodes(in tree: NodeTree) -> [UInt64] {
        let (unfinished, blocked) = (invalidator.unfinished, invalidator.blocked)
        let late = (late?.nodes ?? []).filter { id in
            guard !unfinished.contains(id), let node = tree.nodes.find(id) else { return false }
            return !unfinished.contains(node.pointee.parent.load(ordering: .acquiring))
        }
        return (blocked.isEmpty ? unfinished : blocked).sorted() + late.sorted()
    }
}
