import Control
import GrantModel
import LinuxFS

/// What has happened in a mount, as far as it is kept: so that who was not connected for a moment misses nothing, or learns that he has.
struct EventRing {
    /// The mount's own: numbers of another one mean nothing here.
    let epoch = GrantID.random()
    private(set) var last: UInt64 = 0
    private var events: [SessionEvent] = []

    static let capacity = 4_096

    var mark: EventMark { EventMark(epoch: epoch, number: last) }

    mutating func add(_ kind: SessionEvent.Kind, _ path: [UInt8], newPath: [UInt8]? = nil, pid: Int32, text: String = "") -> SessionEvent {
        last += 1
        let event = SessionEvent(
            number: last, time: Instant(nanoseconds: Clock.realtime), kind: kind, path: path, newPath: newPath, pid: pid, text: text)
        events.append(event)
        // Half at a time, so that most additions move nothing.
        if events.count > Self.capacity { events.removeFirst(Self.capacity / 2) }
        return event
    }

    /// What came after `mark`, and whether more went by than is kept. Nothing for who begins.
    func after(_ mark: EventMark?) -> (events: [SessionEvent], hasMissed: Bool) {
        guard let mark else { return ([], false) }
        guard mark.epoch == epoch else { return (events, true) }
        let first = events.first?.number ?? last + 1
        return (events.filter { $0.number > mark.number }, mark.number + 1 < first)
    }
}
