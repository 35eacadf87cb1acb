@testable import GrantFUSE
import Testing

@Suite struct AWorkersSlot {
    @Test("is given out once until it comes back, and to no more than the limit")
    func once() {
        var slots = WorkerSlots(limit: 3)
        #expect(Set([slots.take(), slots.take(), slots.take()]) == [0, 1, 2])
        #expect(slots.take() == nil)
        slots.giveBack(1)
        #expect(slots.take() == 1)
        #expect(slots.sure == nil, "as many as there are slots: nothing was ever short")
    }

    @Test("when threads run out, only the workers that there are count, and one more thread is not taken for a hundred")
    func shortage() {
        var slots = WorkerSlots(limit: 1000)
        func start() {
            _ = slots.take()
            slots.noteMade()
        }
        for _ in 0..<20 { start() }
        slots.giveBackUnused(slots.take()!)
        #expect(slots.sure == 20)
        start()
        #expect(slots.sure == 22, "one more, and perhaps another")
        slots.giveBackUnused(slots.take()!)
        #expect(slots.sure == 21)
        // The same thread that ends and is made again shows nothing new.
        for _ in 0..<200 {
            slots.giveBack(20)
            start()
        }
        #expect(slots.sure == 21)
        for _ in 0..<64 { start() }
        #expect(slots.sure == nil, "there are threads again")
    }
}
