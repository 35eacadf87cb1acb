import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantViewFS

// What is told to whom.
extension ClaimService {
    /// Wants every event from now on, and what came after the mark.
    func watch(_ since: EventMark?, _ session: ControlSession) {
        state.withLock { state in
            let (missed, hasMissed) = state.events.after(since)
            session.send(.listening(mark: state.events.mark, hasMissed: hasMissed))
            for entry in missed { session.send(.tells(entry.event)) }
            state.watchers[session.number] = session
        }
    }

    /// Notes an event, and tells whoever watches, and the presenters that it is news for.
    ///
    /// `purpose`: of the claim that it comes from, whose presenters are not told.
    ///
    /// Locking: call it with `state` held: the order in which events are told is theirs. Sending never waits.
    static func note(
        _ kind: SessionEvent.Kind, _ path: [UInt8], newPath: [UInt8]? = nil, pid: Int32, text: String = "", purpose: [UInt8]? = nil,
        _ state: inout State
    ) {
        let entry = state.events.add(kind, path, newPath: newPath, pid: pid, text: text, purpose: purpose)
        for session in state.watchers.values { session.send(.tells(entry.event)) }
        tellPresenters(entry, &state)
    }

    /// The same for a claim: an event for each of its items.
    static func note(_ kind: SessionEvent.Kind, _ claim: LiveClaim, _ state: inout State, text: String = "") {
        for part in claim.parts {
            let use = part.request.isWriting ? "write" : "read"
            note(
                kind, part.target.path, newPath: part.request.newPath, pid: claim.session.peer.pid, text: text.isEmpty ? use : text, &state)
        }
    }
}
