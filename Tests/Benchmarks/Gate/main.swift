import GrantCoordinator
import Glibc
import GrantSystem

// The cost of entering and leaving a scope for a request, in nanoseconds: one worker alone, and two
// at once in the same scope.

let turns = 20_000_000

/// Enters and leaves `turns` times, and returns the nanoseconds of one turn.
@inline(never)
func turn(_ coordinator: Coordinator, _ scope: ScopeID, slot: Int) -> Double {
    let before = Clock.monotonic
    for _ in 0..<turns where coordinator.enter(scope, for: .read, slot: slot) == .enter { coordinator.leave(slot: slot) }
    return Double(Clock.monotonic - before) / Double(turns)
}

func measure() throws(Errno) {
    let coordinator = Coordinator(slotCount: 8)
    guard let scope = coordinator.makeScope(refusing: .none) else { throw Errno(ENOMEM) }
    _ = turn(coordinator, scope, slot: 0)
    let alone = turn(coordinator, scope, slot: 0)
    let beside = Lock(0.0)
    let other = try WorkerThread.start("other") {
        let taken = turn(coordinator, scope, slot: 1)
        beside.withLock { $0 = taken }
    }
    let together = max(
        turn(coordinator, scope, slot: 0),
        {
            other.join(); return beside.withLock { $0 }
        }())
    print("entering and leaving a scope: \(rounded(alone)) ns alone, \(rounded(together)) ns beside another worker (aim: less than 20)")
}

func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

try measure()
