import Foundation
import GrantSystem
import Synchronization
import Testing

@Suite struct SharedLockTests {
    private final class Counts: Sendable {
        let alone = Atomic<Int>(0)
        let shared = Atomic<Int>(0)
        let isOver = Atomic<Bool>(false)
    }

    @Test("Threads that always want a lock alone leave it to others half of the time")
    func fairness() {
        let (lock, counts) = (SharedLock(), Counts())
        for _ in 0..<8 {
            Thread.detachNewThread {
                while !counts.isOver.load(ordering: .relaxed) {
                    lock.exclude {
                        counts.alone.wrappingAdd(1, ordering: .relaxed)
                        usleep(5_000)
                    }
                }
            }
        }
        while counts.alone.load(ordering: .relaxed) < 8 { usleep(1_000) }
        let before = counts.alone.load(ordering: .relaxed)
        for _ in 0..<20 { lock.share { _ = counts.shared.wrappingAdd(1, ordering: .relaxed) } }
        let while20 = counts.alone.load(ordering: .relaxed) - before
        counts.isOver.store(true, ordering: .relaxed)
        #expect(while20 <= 40, "20 of the others wait for \(while20)")
    }

    @Test("A lock that a thread has alone is not shared meanwhile")
    func exclusion() {
        let (lock, counts) = (SharedLock(), Counts())
        Thread.detachNewThread {
            lock.exclude {
                counts.alone.store(1, ordering: .sequentiallyConsistent)
                usleep(50_000)
                counts.alone.store(2, ordering: .sequentiallyConsistent)
            }
        }
        while counts.alone.load(ordering: .sequentiallyConsistent) == 0 { usleep(100) }
        lock.share { #expect(counts.alone.load(ordering: .sequentiallyConsistent) == 2) }
    }
}
