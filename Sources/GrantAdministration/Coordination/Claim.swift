import GrantControl
import Glibc
import GrantModel
import GrantSystem

/// A claim that is held. It ends with `end`, its last reference, the process, a revocation, or the daemon's end.
///
/// Locking: its own, for a moment. `end` holds the lock while it waits for the daemons, at most a
/// second.
public final class Claim: Sendable {
    /// The claimed paths on the host, for a program to work on.
    public let paths: [[UInt8]]
    /// The new path for each of `paths`, or nil if the item is not moved.
    public let newPaths: [[UInt8]?]
    private let state: Lock<State>

    private struct State {
        var parts: [ClaimPart]
        var lost: CoordinationError?
    }

    init(parts: [ClaimPart], items: [ItemRequest]) {
        paths = items.map(\.path)
        newPaths = items.map(\.newPath)
        state = Lock(State(parts: parts))
    }

    /// Releases the claim. When it returns, others can have it.
    public func end() {
        state.withLock { state in
            let deadline = Clock.monotonic + 1_000_000_000
            for part in state.parts { try? part.client.send(.endClaim(ClaimPart.number)) }
            for part in state.parts { Claim.awaitEnd(of: part, until: deadline) }
            state.parts = []
        }
    }

    private static func awaitEnd(of part: ClaimPart, until deadline: Int64) {
        var set = PollSet()
        set.add(part.client.descriptor)
        while part.lost([]) == nil, (try? set.wait(until: deadline)) == true {}
    }

    /// Returns why the claim is no longer in force, or nil while it is, and after `end`. It does
    /// not block.
    public func lost() -> CoordinationError? {
        state.withLock { state in
            if state.lost == nil {
                for part in state.parts where state.lost == nil { state.lost = part.lost(paths.first ?? []) }
                // A claim that is lost in one mount is lost in all.
                if state.lost != nil { state.parts = [] }
            }
            return state.lost
        }
    }

    /// Waits until the claim is lost, and returns why, or nil after so many seconds.
    public func waitUntilLost(_ seconds: Double) -> CoordinationError? {
        let deadline = Clock.deadline(seconds: seconds)
        while true {
            if let error = lost() { return error }
            // Retained here, so that `end` on another thread closes no descriptor that is being polled.
            let parts = state.withLock { $0.parts }
            var set = PollSet()
            for part in parts { set.add(part.client.descriptor) }
            let turn = min(deadline, Clock.monotonic + 200_000_000)
            guard !parts.isEmpty, (try? set.wait(until: turn)) != nil, Clock.monotonic < deadline else { return lost() }
        }
    }

    /// Descriptors that become readable when the claim may be lost.
    public var descriptors: [Int32] { state.withLock { $0.parts.map(\.client.descriptor) } }

    /// Tells presenters and waiting claimants that an item claimed for writing, or one below it, was moved. Both paths are on the host.
    public func tellMoved(_ path: [UInt8], to newPath: [UInt8]) {
        state.withLock { state in
            for part in state.parts { try? part.client.send(.moved(claim: ClaimPart.number, from: path, to: newPath)) }
        }
    }
}
