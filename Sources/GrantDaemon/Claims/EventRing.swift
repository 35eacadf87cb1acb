import GrantControl
import GrantModel
import GrantSystem

/// A ring buffer of a mount's latest events. A client that was disconnected for a moment misses nothing, or learns that it has.
struct EventRing {
    /// The mount's own: numbers of other epochs mean nothing here.
    let epoch: GrantID
    private(set) var last: UInt64
    private(set) var events: [Entry]

    init(epoch: GrantID = .random(), last: UInt64 = 0, events: [Entry] = []) {
        (self.epoch, self.last, self.events) = (epoch, last, events)
    }

    /// An event, and the purpose that caused it, whose presenters are not told.
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
        // Removes half at a time, so that most additions move nothing.
        if events.count > Self.capacity { events.removeFirst(Self.capacity / 2) }
        return entry
    }

    /// Returns the events after `mark`, and whether some were dropped before. Empty without a mark.
    func after(_ mark: EventMark?) -> (events: [Entry], hasMissed: Bool) {
        guard let mark else { return ([], false) }
        guard mark.epoch == epoch else { return (events, true) }
        let first = events.first?.event.number ?? last &+ 1
        // The number comes from a client and can have any value.
        return (events.filter { $0.event.number > mark.number }, mark.number < first &- 1)
    }
}
