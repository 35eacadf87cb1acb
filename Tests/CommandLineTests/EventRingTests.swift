import Control
import GrantModel
import Testing

@testable import grantfs

@Suite struct TheEventsOfAMount {
    private func ring(_ count: Int) -> EventRing {
        var ring = EventRing()
        for number in 0..<count { _ = ring.add(.changed, Array("\(number)".utf8), pid: 1, purpose: [UInt8(number % 3)]) }
        return ring
    }

    @Test("go on for who comes back where it was: nothing is missed and nothing is told twice")
    func resuming() {
        var ring = ring(5)
        let mark = ring.mark
        #expect(ring.after(mark).events.isEmpty && !ring.after(mark).hasMissed)
        for path: [UInt8] in [[1], [2]] { _ = ring.add(.moved, path, pid: 1) }
        let (events, hasMissed) = ring.after(mark)
        #expect(events.map(\.event.number) == [6, 7] && events.map(\.event.path) == [[1], [2]] && !hasMissed)
        #expect(ring.after(EventMark(epoch: mark.epoch, number: 1)).events.map(\.purpose) == [[1], [2], [0], [1], nil, nil])
        #expect(ring.after(nil).events.isEmpty)
    }

    @Test("say so to who was away for longer than they are kept, and to who comes from another mount")
    func missing() {
        var ring = ring(10)
        let mark = ring.mark
        while ring.last < mark.number + UInt64(EventRing.capacity) { _ = ring.add(.changed, [], pid: 1) }
        let first = ring.after(EventMark(epoch: mark.epoch, number: 0)).events[0].event.number
        #expect(ring.after(EventMark(epoch: mark.epoch, number: first - 2)).hasMissed)
        #expect(!ring.after(EventMark(epoch: mark.epoch, number: first - 1)).hasMissed)
        #expect(ring.after(mark).hasMissed)
        #expect(ring.after(EventMark(epoch: .random(), number: ring.last)).hasMissed)
    }
}
