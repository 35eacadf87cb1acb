import GrantControl
import GrantCoordinator
import GrantModel
import GrantSystem
import GrantViewFS

// What presenters are told.
extension ClaimService {
    /// Tells those whom an event is news for.
    ///
    /// Locking: call it with `state` held. Sending never waits.
    static func tellPresenters(_ entry: EventRing.Entry, _ state: inout State) {
        switch entry.event.kind {
        // Told by itself: who is reached by another grant as well is not released.
        case .claimWaits, .claimGranted, .claimEnded, .revoked, .restored: return
        case .moved, .changed, .appeared, .removed: break
        }
        for id in state.presenting.live.keys { tell(entry, to: id, &state) }
    }

    /// Tells one presenter, if it is news for it.
    ///
    /// Locking: call it with `state` held.
    static func tell(_ entry: EventRing.Entry, to id: PresenterID, _ state: inout State) {
        guard let presenter = state.presenting.live[id],
            let telling = PresenterTelling(entry.event, to: presenter.number, of: presenter.path)
        else { return }
        if telling.kind == .moved, let newPath = telling.newPath { state.presenting.live[id]?.path = newPath }
        // Its own purpose knows, but where the item is has to be known here.
        if let purpose = entry.purpose, purpose == state.presenting.table.presenters[id]?.purpose { return }
        presenter.session.send(.tellsPresenter(telling))
    }

    /// Tells the presenters of a directory that is found at another path, and of what lies below, when nobody has coordinated that.
    func noteMoved(_ path: [UInt8], to newPath: [UInt8]) {
        if path == newPath { return }
        let isNews = state.withLock { state -> Bool in
            guard state.presenting.live.values.contains(where: { MountTable.path($0.path, isAtOrBelow: path) }) else { return false }
            ClaimService.note(.moved, path, newPath: newPath, pid: 0, &state)
            return true
        }
        if isNews { seatAnew() }
    }

    /// Looks at what claims for writing have come to that have ended, on a thread of its own.
    func lookAtWritten() {
        let written = state.withLock { state in
            defer { state.presenting.written = [] }
            return state.presenting.written
        }
        if written.isEmpty { return }
        _ = BackgroundTask { [self] in
            for claim in written {
                var known = claim.moves
                for part in claim.parts where !known.contains(part.target.path) {
                    let fate = part.target.fate(wasAbsent: part.access.item.identities.isEmpty)
                    if case .moved(let place) = fate { known.insert(place) }
                    state.withLock { state in ClaimService.note(fate, of: part.target.path, claim, &state) }
                }
            }
            seatAnew()
        }
    }

    private static func note(_ fate: ClaimTarget.Fate, of path: [UInt8], _ claim: Written, _ state: inout State) {
        var newPath: [UInt8]?
        let kind: SessionEvent.Kind
        switch fate {
        case .absent: return
        case .appeared: kind = .appeared
        case .present: kind = .changed
        case .removed: kind = .removed
        case .moved(let place): (kind, newPath) = (.moved, place)
        }
        note(kind, path, newPath: newPath, pid: claim.pid, purpose: claim.purpose, &state)
    }
}
