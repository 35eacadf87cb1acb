import GrantModel
import Testing

@testable import GrantControl
@testable import GrantDaemon

@Suite struct EventRingTests {
    private func ring(_ count: Int) -> EventRing {
        var ring = EventRing()
        for number in 0..<count { _ = ring.add(.moved, Array("\(number)".utf8), pid: 1) }
        return ring
    }

    private func numbers(_ ring: EventRing, after mark: EventMark?) -> [UInt64] { ring.after(mark).events.map(\.event.number) }

    @Test("A new watcher of an event ring gets no earlier events")
    func whoBeginsGetsNothingThatWasBefore() {
        let (events, hasMissed) = ring(10).after(nil)
        #expect(events.isEmpty && !hasMissed)
    }

    @Test("A returning watcher of an event ring gets every event since its mark")
    func whoComesBackMissesNothing() {
        var ring = ring(10)
        let mark = ring.mark
        #expect(mark.number == 10 && numbers(ring, after: mark).isEmpty)
        for _ in 0..<100 { _ = ring.add(.claimEnded, [], pid: 2) }
        #expect(numbers(ring, after: mark) == Array(11...110))
        #expect(!ring.after(mark).hasMissed)
        #expect(numbers(ring, after: EventMark(epoch: ring.epoch, number: 109)) == [110])
    }

    @Test("An event ring reports the events missed beyond its capacity")
    func moreThanIsKeptIsSaidToBeMissed() throws {
        var ring = ring(1)
        let mark = ring.mark
        for _ in 0..<3 * EventRing.capacity { _ = ring.add(.claimWaits, [], pid: 3) }
        let (events, hasMissed) = ring.after(mark)
        #expect(hasMissed)
        // The remaining events come in order and without a gap, up to the last.
        let first = try #require(events.first?.event.number)
        #expect(events.map(\.event.number) == Array(first...ring.last) && events.count >= EventRing.capacity / 2)
        // The oldest that is kept can be gone on from.
        #expect(!ring.after(EventMark(epoch: ring.epoch, number: first - 1)).hasMissed)
        #expect(ring.after(EventMark(epoch: ring.epoch, number: first - 2)).hasMissed)
    }

    @Test("A mark of another mount makes an event ring report missed events")
    func aNumberOfAnotherMountIsNone() {
        let (old, new) = (ring(50), ring(3))
        let (events, hasMissed) = new.after(old.mark)
        #expect(hasMissed && events.count == 3)
    }

    /// A client says where it was, and may say anything.
    @Test("An event ring answers any event number")
    func anyNumberIsAnswered() {
        var ring = ring(10)
        for number in [0, 1, UInt64.max - 1, .max] { _ = ring.after(EventMark(epoch: ring.epoch, number: number)) }
        #expect(numbers(ring, after: EventMark(epoch: ring.epoch, number: .max)).isEmpty)
        for _ in 0..<5000 { _ = ring.add(.moved, [], pid: 1) }
        #expect(!ring.after(EventMark(epoch: ring.epoch, number: .max)).hasMissed)
        #expect(ring.after(EventMark(epoch: ring.epoch, number: 0)).hasMissed)
    }
}
