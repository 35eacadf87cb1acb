import GrantControl
import GrantModel
import GrantSystem

/// What has happened in a mount, as far as it is kept: so that who was not connected for a moment misses nothing, or learns that he has.
struct EventRing {
    /// The mount's own: numbers of another one mean nothing here.
    let epoch: GrantID
    private(set) var last: UInt64
    private(set) var events: [Entry]

    init(epoch: GrantID = .random(), last: UInt64 = 0, events: [Entry] = []) {
        (self.epoch, self.last, self.events) = (epoch, last, events)
    }

    /// An event, and whose purpose it was: its own presenters are not told.
    struct Entry {
        let event: SessionEvent
        let purpose: [UInt8]?
    }

    static let capacity = 4_096

    var mark: EventMark { EventMark(epoch: epoch, number: last) }

    mutating func add(
        _ kind: SessionEvent.Kind, _ path: [UInt8], newPath: [UInt8]? = nil, pid: Int32, text: String = "", purpose: [UInt8]? = nil
    ) -> Entry {
        last += 1
        let event = SessionEvent(
            number: last, time: Instant(nanoseconds: Clock.realtime), kind: kind, path: path, newPath: newPath, pid: pid, text: text)
        let entry = Entry(event: event, purpose: purpose)
        events.append(entry)
        // Half at a time, so that most additions move nothing.
        if events.count > Self.capacity { events.removeFirst(Self.capacity / 2) }
        return entry
    }

    /// What came after `mark`, and whether more went by than is kept. Nothing for who begins.
    func after(_ mark: EventMark?) -> (events: [Entry], hasMissed: Bool) {
        guard let mark else { return ([], false) }
        guard mark.epoch == epoch else { return (events, true) }
        let first = events.first?.event.number ?? last &+ 1
        // The number comes from a client, and may be any.
        return (events.filter { $0.event.number > mark.number }, mark.number < first &- 1)
    }
}
