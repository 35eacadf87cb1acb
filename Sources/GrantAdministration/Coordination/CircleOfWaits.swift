import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// Finds circles of waits that go through several mounts: each mount knows who waits for whom in it, and refuses what would close a circle
/// there. Whoever waits for long asks them all, from claimant to claimant, whether it waits for itself in the end.
///
/// Waits are seen one after the other, so a circle counts when all of it is seen twice: each of its waits was there from the first look to the second,
/// so all were there at one moment, and none of them ends by itself. Of its claimants the one with the largest id gives up.
struct CircleOfWaits {
    let claimant: GrantID
    let records: [MountRecord]
    let directory: String
    /// Nobody can wait for who holds nothing, and who waits takes nothing else meanwhile.
    private var mayBeWaitedFor: Bool
    /// When to look next, `Clock.monotonic`.
    private(set) var due = Clock.monotonic + Self.first
    private var pause = Self.first

    private static let first: Int64 = 200_000_000
    private static let longest: Int64 = 2_000_000_000
    /// So many claimants are asked about in one look, and for so long: a mount that does not answer must not keep the caller from its own time-out.
    private static let mostAsked = 200
    private static let longestLook: Int64 = 300_000_000

    init(claimant: GrantID, records: [MountRecord], directory: String) {
        (self.claimant, self.records, self.directory) = (claimant, records, directory)
        mayBeWaitedFor = records.count > 1
    }

    /// When to be asked again; nil: never.
    var next: Int64? { mayBeWaitedFor ? due : nil }

    /// Whether the caller's wait is to end, because it is for itself. Takes a third of a second at the most, and no longer than until `deadline`.
    mutating func isClosed(before deadline: Int64?) -> Bool {
        pause = min(pause * 2, Self.longest)
        defer { due = Clock.monotonic + pause }
        let limit = min(Clock.monotonic + Self.longestLook, deadline ?? .max)
        guard let circle = look(until: limit) else { return false }
        // Each of its waits once more, and whose turn it is to give up.
        for wait in circle where waits(of: wait.claimant, until: limit)?.blocks.contains(wait.block) != true { return false }
        return circle.allSatisfy { $0.claimant <= claimant }
    }

    /// One wait of a claimant.
    private struct Wait {
        let claimant: GrantID
        let block: ClaimBlock
    }

    /// The waits from the caller's own claims back to them; nil when there is no such way, or a mount does not say.
    private mutating func look(until limit: Int64) -> [Wait]? {
        var reached: [GrantID: Wait] = [:]
        var open = [claimant]
        var asked = 0
        while !open.isEmpty, asked < Self.mostAsked {
            let one = open.removeFirst()
            asked += 1
            guard let (holds, blocks) = waits(of: one, until: limit) else { return nil }
            if one == claimant, !holds {
                mayBeWaitedFor = false
                return nil
            }
            for block in blocks where reached[block.claimant] == nil {
                reached[block.claimant] = Wait(claimant: one, block: block)
                if block.claimant == claimant { return way(reached) }
                open.append(block.claimant)
            }
        }
        return nil
    }

    private func way(_ reached: [GrantID: Wait]) -> [Wait] {
        var way: [Wait] = []
        var at = claimant
        repeat {
            guard let wait = reached[at] else { break }
            way.append(wait)
            at = wait.claimant
        } while at != claimant
        return way
    }

    private func waits(of claimant: GrantID, until limit: Int64) -> (holds: Bool, blocks: [ClaimBlock])? {
        var (holds, blocks): (Bool, [ClaimBlock]) = (false, [])
        for record in records {
            switch Daemons.ask(record, .waits(claimant: claimant), in: directory, deadline: limit) {
            case .success(.waits(let holdsHere, let blocksHere)):
                holds = holds || holdsHere
                blocks += blocksHere
            // Its claims have ended with it.
            case .failure(.dead): break
            default: return nil
            }
        }
        return (holds, blocks)
    }
}
