import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// Detects deadlocks that span several mounts. Within one mount, the daemon knows which claimant
/// waits for which and refuses to close a cycle. A claimant that waits long asks all mounts, from
/// claimant to claimant, whether it waits for itself in the end.
///
/// The edges are read one after the other, so a cycle counts only if all of it is seen twice. Then
/// each edge existed from the first pass to the second, so all existed at one moment, and none of
/// them ends by itself. Of the claimants in the cycle, the claimant with the largest id gives up.
struct DeadlockDetector {
    let claimant: GrantID
    let records: [MountRecord]
    let directory: String
    /// It is false if the caller holds nothing, so that no claimant can wait for it. The caller
    /// takes nothing else while it waits.
    private var mayHoldClaims: Bool
    /// When to check next, by `Clock.monotonic`.
    private(set) var due = Clock.monotonic + Self.minPause
    private var pause = Self.minPause

    private static let minPause: Int64 = 200_000_000
    private static let maxPause: Int64 = 2_000_000_000
    /// The limits of one check: a mount that does not answer must not keep the caller from its own time-out. `maxDuration`:
    /// nanoseconds.
    private static let maxClaimants = 200
    private static let maxDuration: Int64 = 300_000_000

    init(claimant: GrantID, records: [MountRecord], directory: String) {
        (self.claimant, self.records, self.directory) = (claimant, records, directory)
        mayHoldClaims = records.count > 1
    }

    /// When to check again. It is nil if no check is needed.
    var next: Int64? { mayHoldClaims ? due : nil }

    /// Whether the caller is in a deadlock and has to give up. Takes at most a third of a second, and not beyond `deadline`.
    mutating func isDeadlocked(before deadline: Int64?) -> Bool {
        pause = min(pause * 2, Self.maxPause)
        defer { due = Clock.monotonic + pause }
        let limit = min(Clock.monotonic + Self.maxDuration, deadline ?? .max)
        guard let cycle = findCycle(until: limit) else { return false }
        // Reads each edge again, and decides whose turn it is to give up.
        for wait in cycle where waits(of: wait.claimant, until: limit)?.blocks.contains(wait.block) != true { return false }
        return cycle.allSatisfy { $0.claimant <= claimant }
    }

    /// An edge of the wait graph.
    private struct Edge {
        let claimant: GrantID
        let block: ClaimBlock
    }

    /// Returns the edges from the caller's own claims back to them, or nil if there is no cycle, or
    /// a mount does not answer.
    private mutating func findCycle(until limit: Int64) -> [Edge]? {
        var reached: [GrantID: Edge] = [:]
        var open = [claimant]
        var asked = 0
        while !open.isEmpty, asked < Self.maxClaimants {
            let one = open.removeFirst()
            asked += 1
            guard let (holds, blocks) = waits(of: one, until: limit) else { return nil }
            if one == claimant, !holds {
                mayHoldClaims = false
                return nil
            }
            for block in blocks where reached[block.claimant] == nil {
                reached[block.claimant] = Edge(claimant: one, block: block)
                if block.claimant == claimant { return edges(reached) }
                open.append(block.claimant)
            }
        }
        return nil
    }

    private func edges(_ reached: [GrantID: Edge]) -> [Edge] {
        var edges: [Edge] = []
        var at = claimant
        repeat {
            guard let wait = reached[at] else { break }
            edges.append(wait)
            at = wait.claimant
        } while at != claimant
        return edges
    }

    private func waits(of claimant: GrantID, until limit: Int64) -> (holds: Bool, blocks: [ClaimBlock])? {
        var (holds, blocks): (Bool, [ClaimBlock]) = (false, [])
        for record in records {
            switch Daemons.ask(record, .waits(claimant: claimant), in: directory, deadline: limit) {
            case .success(.waits(let holdsHere, let blocksHere)):
                holds = holds || holdsHere
                blocks += blocksHere
            // Its claims have ended with its daemon.
            case .failure(.dead): break
            default: return nil
            }
        }
        return (holds, blocks)
    }
}
