import GrantControl
import GrantCoordinator
import GrantModel

extension ClaimService {
    /// Returns the edges of the wait graph at a claimant, to detect deadlocks that span several mounts.
    ///
    /// Locking: `state`.
    func waits(of claimant: GrantID) -> ControlReply {
        let id = ClaimantID(high: claimant.high, low: claimant.low)
        return state.withLock { state in
            var (holds, blocks): (Bool, [ClaimBlock]) = (false, [])
            for claim in state.table.claims where claim.claimant == id {
                guard !claim.isHeld, let own = state.claims[claim.id] else {
                    holds = holds || claim.isHeld
                    continue
                }
                for blocker in state.table.blockers(of: claim.id) {
                    // If there are more, the cycle is found when some of them are gone.
                    guard blocks.count < Self.maxBlocks, let other = state.claims[blocker], let theirs = state.table[blocker]?.claimant
                    else { continue }
                    blocks.append(
                        ClaimBlock(waiting: own.id, blocker: other.id, claimant: GrantID(high: theirs.high, low: theirs.low)))
                }
            }
            return .waits(holds: holds, blocks)
        }
    }

    private static let maxBlocks = 512
}
