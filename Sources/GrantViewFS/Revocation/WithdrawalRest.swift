import GrantCoordinator
import GrantFUSE
import GrantSystem
import GrantViewTree

/// What a withdrawal waits for before it is confirmed, when everything is in force that does not depend on programs.
struct WithdrawalRest: Sendable {
    /// Pages that the kernel still has to drop.
    let invalidator: DataInvalidator
    /// Replies from before; nil for a narrowing, where attributes may be read on.
    let late: LateReplies?
    let changes: ChangesUnderWay

    /// How long replies from before, and the changes that nobody waits for, may take before a withdrawal reports them.
    static let microseconds = 200_000

    /// Does what can be done now. Returns whether nothing is left.
    func poll() -> Bool {
        invalidator.poll()
        // Each of them, whatever the others say.
        let isLateDone = late?.poll() ?? true
        let areChangesDone = changes.poll()
        return invalidator.isDone && isLateDone && areChangesDone
    }

    /// The nodes of which something may still be cached.
    var nodes: Set<UInt64> { invalidator.unfinished.union(late?.nodes ?? []) }
}
