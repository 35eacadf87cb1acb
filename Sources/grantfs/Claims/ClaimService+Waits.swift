import GrantControl
import GrantCoordinator
import GrantModel

extension ClaimService {
    /// What a claimant needs to know to find a circle of waits that goes through several mounts, no table of which has it whole.
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
                    // With more in the way, the circle is found when some of them have gone.
                    guard blocks.count < Self.mostBlocks, let other = state.claims[blocker], let theirs = state.table[blocker]?.claimant
                    else { continue }
                    blocks.append(
                        ClaimBlock(waiting: own.id, blocker: other.id, claimant: GrantID(high: theirs.high, low: theirs.low)))
                }
            }
            return .waits(holds: holds, blocks)
        }
    }

    private static let mostBlocks = 512
}
