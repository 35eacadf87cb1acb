import GrantControl
import Glibc
import GrantModel
import GrantSystem

/// A claim that is held. It ends with `end`, with the last reference to it, with the process, with a revocation, or with a daemon.
///
/// Locking: its own, for a moment; `end` waits with it for the daemons, a second at most.
public final class Claim: Sendable {
    /// Of what was claimed, on the host: what a program there works on.
    public let paths: [[UInt8]]
    /// Where what is moved goes, for each of `paths`; nil for what is not.
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

    /// Gives it back. When it returns, others can have it.
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

    /// Why it is no longer in force; nil while it is, and after `end`. Looks and does not wait.
    public func lost() -> CoordinationError? {
        state.withLock { state in
            if state.lost == nil {
                for part in state.parts where state.lost == nil { state.lost = part.lost(paths.first ?? []) }
                // Half a claim is none.
                if state.lost != nil { state.parts = [] }
            }
            return state.lost
        }
    }

    /// Waits until it is lost, and says why; nil when the seconds have passed.
    public func waitUntilLost(_ seconds: Double) -> CoordinationError? {
        let deadline = Clock.deadline(seconds: seconds)
        while true {
            if let error = lost() { return error }
            // Held on to, so that `end` by another thread closes nothing that is waited on; a turn's end shows it.
            let parts = state.withLock { $0.parts }
            var set = PollSet()
            for part in parts { set.add(part.client.descriptor) }
            let turn = min(deadline, Clock.monotonic + 200_000_000)
            guard !parts.isEmpty, (try? set.wait(until: turn)) != nil, Clock.monotonic < deadline else { return lost() }
        }
    }

    /// Descriptors that become readable when it may be lost.
    public var descriptors: [Int32] { state.withLock { $0.parts.map(\.client.descriptor) } }

    /// Tells presenters, and those who wait, that an item that is claimed for writing, or one below it, now has another place. Both on the host.
    public func tellMoved(_ path: [UInt8], to newPath: [UInt8]) {
        state.withLock { state in
            for part in state.parts { try? part.client.send(.moved(claim: ClaimPart.number, from: path, to: newPath)) }
        }
    }
}
