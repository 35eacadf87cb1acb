@testable import GrantFUSE
import Testing

@Suite struct AWorkersSlot {
    @Test("A worker slot is given out once until it is returned")
    func once() {
        var slots = WorkerSlots(limit: 3)
        #expect(Set([slots.take(), slots.take(), slots.take()]) == [0, 1, 2])
        #expect(slots.take() == nil)
        slots.release(1)
        #expect(slots.take() == 1)
        #expect(slots.guaranteed == nil, "as many as there are slots: nothing was ever short")
    }

    @Test("A shortage of threads reduces the guaranteed workers to the existing ones")
    func shortage() {
        var slots = WorkerSlots(limit: 1000)
        func start() {
            _ = slots.take()
            slots.workerStarted()
        }
        for _ in 0..<20 { start() }
        slots.releaseUnused(slots.take()!)
        #expect(slots.guaranteed == 20)
        start()
        #expect(slots.guaranteed == 22, "one more, and perhaps another")
        slots.releaseUnused(slots.take()!)
        #expect(slots.guaranteed == 21)
        // The same thread that ends and is made again shows nothing new.
        for _ in 0..<200 {
            slots.release(20)
            start()
        }
        #expect(slots.guaranteed == 21)
        for _ in 0..<64 { start() }
        #expect(slots.guaranteed == nil, "there are threads again")
    }
}
