import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

// From the moment when no other claim conflicts to the moment when the claimant may begin.
extension ClaimService {
    /// Prepares a claim, and tells the claimant that it may begin.
    func grant(_ id: ClaimID) {
        let (found, hasPresenters) = state.withLock { ($0.claims[id], !$0.presenting.live.isEmpty) }
        guard let claim = found else { return }
        // The presenters' items are looked up on disk.
        if hasPresenters || isExpectingPresenters, !claim.isPrepared {
            return _ = BackgroundTask { [self] in
                awaitPresenters()
                askPresenters(of: id)
            }
        }
        let scopes = mandatoryScopes(of: claim)
        if scopes.isEmpty { return tell(id) }
        // The kernel may have much to write back.
        _ = BackgroundTask { [self] in
            if bind(id, in: scopes) { tell(id) }
        }
    }

    private func tell(_ id: ClaimID) {
        let binding = binding(of: id)
        state.withLock { state in
            state.claims[id]?.isGranted = true
            guard let claim = state.claims[id] else { return }
            record(id, state, binding)
            ClaimService.emit(.claimGranted, claim, &state)
            // The reply is sent before another thread can report the end of the claim.
            claim.session.send(.granted(claim: claim.number, reach: claim.reach))
        }
    }

    /// Returns the open scopes of mandatory grants that a claim reaches.
    private func mandatoryScopes(of claim: LiveClaim) -> [Scope] {
        let reached = claim.parts.reduce(into: Set<UInt32>()) { $0.formUnion($1.scopes) }
        return files.names.open.map(\.scope).filter { reached.contains($0.id.rawValue) && isMandatory($0.grant) }
    }

    /// Makes the claim mandatory for operations through the mount. Returns false if it ended meanwhile.
    private func bind(_ id: ClaimID, in scopes: [Scope]) -> Bool {
        let bound = state.withLock { state -> LiveClaim? in
            guard state.claims[id] != nil else { return nil }
            state.claims[id]?.bound = Set(scopes.map(\.id.rawValue))
            return state.claims[id]
        }
        guard let bound else { return false }
        let claim = MandatoryClaim(
            id: id.rawValue, process: bound.session.peer.pid, parts: bound.parts.map { ($0.target, $0.access) },
            patience: bound.holdMilliseconds == 0 ? nil : Int64(truncatingIfNeeded: bound.holdMilliseconds) &* 1_000_000)
        let isGone: () -> Bool = { self.state.withLock { $0.claims[id] == nil } }
        let isBound = files.bind(
            claim, in: scopes, isCancelled: isGone,
            progress: { bound.session.send(.progress(claim: bound.number, stage: $0, done: $1, total: $2)) })
        // If it ended before it was bound, nothing else releases it.
        if isGone() { files.unbind(id.rawValue) }
        return isBound
    }

    /// Updates what held claims bind: a grant has become mandatory or advisory, or was opened again.
    ///
    /// It runs on a thread of its own, because it looks at directories. It waits for that thread
    /// until `deadline` (`Clock.monotonic`).
    func rebind(until deadline: Int64) {
        let starts = rebindRequests.withLock { turns in
            turns += 1
            return turns == 1
        }
        if starts {
            _ = BackgroundTask { [self] in
                var isAgain = true
                while isAgain {
                    let seen = rebindRequests.withLock { $0 }
                    rebindAll()
                    isAgain = rebindRequests.withLock { turns in
                        if turns == seen { turns = 0 }
                        return turns != 0
                    }
                }
            }
        }
        while Clock.monotonic < deadline, rebindRequests.withLock({ $0 }) > 0 { usleep(1_000) }
    }

    private func rebindAll() {
        let held = state.withLock { state in state.claims.filter { $0.value.isGranted } }
        if held.isEmpty { return }
        let meeting = files.scopes(meeting: held.values.flatMap { $0.parts.map(\.access.item) })
        var place = 0
        for (id, old) in held {
            var claim = old
            for part in claim.parts.indices {
                claim.parts[part].scopes = Set(meeting[place].map(\.id.rawValue))
                place += 1
            }
            let scopes = mandatoryScopes(of: claim)
            guard Set(scopes.map(\.id.rawValue)) != old.bound else { continue }
            state.withLock { state in
                guard let parts = state.claims[id]?.parts, parts.count == claim.parts.count else { return }
                for part in parts.indices {
                    state.claims[id]?.parts[part].scopes.formUnion(claim.parts[part].scopes.subtracting(state.withdrawn))
                }
            }
            files.unbind(id.rawValue)
            if scopes.isEmpty {
                state.withLock { $0.claims[id]?.bound = [] }
            } else {
                _ = bind(id, in: scopes)
            }
            let binding = binding(of: id)
            state.withLock { record(id, $0, binding) }
        }
    }
}
