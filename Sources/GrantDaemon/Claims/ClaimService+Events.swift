import GrantControl
import GrantCoordinator
import Glibc
import GrantModel
import GrantViewFS

// Delivery of events.
extension ClaimService {
    /// Subscribes to all events, and sends those since the mark.
    func watch(_ since: EventMark?, _ session: ControlSession) {
        state.withLock { state in
            let (missed, hasMissed) = state.events.after(since)
            session.send(.listening(mark: state.events.mark, hasMissed: hasMissed))
            for entry in missed { session.send(.tells(entry.event)) }
            state.subscribers[session.number] = session
        }
    }

    /// Records an event, and sends it to subscribers and to the presenters it concerns.
    ///
    /// `purpose`: that of the claim it comes from, whose presenters are not told.
    ///
    /// Locking: call it with `state` held, which keeps events in order. Sending never blocks.
    static func emit(
        _ kind: SessionEvent.Kind, _ path: [UInt8], newPath: [UInt8]? = nil, pid: Int32, text: String = "", purpose: [UInt8]? = nil,
        _ state: inout State
    ) {
        let entry = state.events.add(kind, path, newPath: newPath, pid: pid, text: text, purpose: purpose)
        for session in state.subscribers.values { session.send(.tells(entry.event)) }
        tellPresenters(entry, &state)
    }

    /// The same for a claim: one event for each of its items.
    static func emit(_ kind: SessionEvent.Kind, _ claim: LiveClaim, _ state: inout State, text: String = "") {
        for part in claim.parts {
            let use = part.request.isWriting ? "write" : "read"
            emit(
                kind, part.target.path, newPath: part.request.newPath, pid: claim.session.peer.pid, text: text.isEmpty ? use : text, &state)
        }
    }
}
