import GrantControl
import GrantCoordinator
import GrantModel
import GrantSystem
import GrantViewFS

// Notices to presenters.
extension ClaimService {
    /// Notifies the presenters that an event concerns.
    ///
    /// Locking: call it with `state` held. Sending never blocks.
    static func tellPresenters(_ entry: EventRing.Entry, _ state: inout State) {
        switch entry.event.kind {
        // Sent separately: a presenter that another grant reaches too is not released.
        case .claimWaits, .claimGranted, .claimEnded, .revoked, .restored: return
        case .moved, .changed, .appeared, .removed: break
        }
        for id in state.presenting.live.keys { tell(entry, to: id, &state) }
    }

    /// Notifies one presenter, if the event concerns it.
    ///
    /// Locking: call it with `state` held.
    static func tell(_ entry: EventRing.Entry, to id: PresenterID, _ state: inout State) {
        guard let presenter = state.presenting.live[id],
            let telling = PresenterTelling(entry.event, to: presenter.number, of: presenter.path)
        else { return }
        if telling.kind == .moved, let newPath = telling.newPath { state.presenting.live[id]?.path = newPath }
        // Presenters of the same purpose know already, but the item's path has to be updated here.
        if let purpose = entry.purpose, purpose == state.presenting.table.presenters[id]?.purpose { return }
        presenter.session.send(.tellsPresenter(telling))
    }

    /// Notifies the presenters of a directory that was found at another path, and of the items
    /// below, if the move was not coordinated.
    func recordMove(_ path: [UInt8], to newPath: [UInt8]) {
        if path == newPath { return }
        let isNews = state.withLock { state -> Bool in
            guard state.presenting.live.values.contains(where: { MountTable.path($0.path, isAtOrBelow: path) }) else { return false }
            ClaimService.emit(.moved, path, newPath: newPath, pid: 0, &state)
            return true
        }
        if isNews { relocatePresenters() }
    }

    /// Checks what ended writing claims did to their items, on a thread of its own.
    func checkWritten() {
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
                    state.withLock { state in ClaimService.emit(fate, of: part.target.path, claim, &state) }
                }
            }
            relocatePresenters()
        }
    }

    private static func emit(_ fate: ClaimTarget.Fate, of path: [UInt8], _ claim: EndedWrite, _ state: inout State) {
        var newPath: [UInt8]?
        let kind: SessionEvent.Kind
        switch fate {
        case .absent: return
        case .appeared: kind = .appeared
        case .present: kind = .changed
        case .removed: kind = .removed
        case .moved(let place): (kind, newPath) = (.moved, place)
        }
        emit(kind, path, newPath: newPath, pid: claim.pid, purpose: claim.purpose, &state)
    }
}
