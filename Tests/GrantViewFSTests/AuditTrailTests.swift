import GrantFUSE
import GrantModel
import GrantSystem
import Testing

@testable import GrantViewFS

/// What waits to be written down.
@Suite struct AnAuditTrail {
    private let trail = AuditTrail()

    private func waiting(in scope: UInt32) -> AuditTrail.PendingCall {
        let caller = Caller(uid: 1, gid: 1, pid: 0, umask: 0)
        return AuditTrail.PendingCall(call: AuditedCall(act: .opened, access: .read), caller: caller, scope: scope, path: nil)
    }

    @Test("The audit trail bounds a busy scope's records and leaves room for others")
    func boundsWhatNobodyWaitsForAndLeavesRoomToEveryScope() {
        let answered = Lock(0)
        for _ in 0..<10_000 { trail.record(waiting(in: 1), error: 13) { answered.withLock { $0 += 1 } } }
        for _ in 0..<100 { trail.record(waiting(in: 2), error: 13) }
        // A request without room is answered nevertheless.
        let crowded = answered.withLock { $0 }
        #expect(crowded > 5000)
        let batch = trail.next()
        #expect(batch.records.filter { $0.scope == 1 }.count == 10_000 - crowded)
        #expect(batch.records.filter { $0.scope == 2 }.count == 100)
        #expect(batch.unwritten == [1: Int64(crowded)])
        batch.settle(Array(1...Int64(batch.records.count)))
        #expect(answered.withLock { $0 } == 10_000)
        // There is room again.
        trail.record(waiting(in: 1), error: 13)
        let next = trail.next()
        #expect(next.records.count == 1 && next.unwritten.isEmpty)
    }

    @Test("The audit trail counts the records that the store did not take")
    func countsWhatTheStoreWouldNotTake() {
        for scope: UInt32 in [1, 1, 2] { trail.record(waiting(in: scope), error: 13) }
        trail.next().settle(nil)
        trail.record(waiting(in: 3), error: 13)
        let batch = trail.next()
        #expect(batch.unwritten == [1: 2, 2: 1])
        // And not again, once it was written.
        batch.settle([1])
        trail.record(waiting(in: 3), error: 13)
        #expect(trail.next().unwritten.isEmpty)
    }

    @Test("A change waiting in the audit trail gets its log number or nil")
    func tellsWhoWaitsItsNumberOrThatItCouldNotBeWritten() throws {
        let record = AuditRecord(
            AuditedCall(act: .unlinked), by: Caller(uid: 1, gid: 1, pid: 0, umask: 0), scope: 1, error: nil)
        for numbers: [Int64]? in [[7], nil] {
            let got = Lock<Int64?>(0)
            let worker = try WorkerThread.start("test") { [trail] in
                let number = trail.record(record)
                got.withLock { $0 = number }
            }
            let batch = trail.next()
            #expect(batch.records.map(\.act) == [.unlinked] && batch.results.isEmpty)
            batch.settle(numbers)
            worker.join()
            #expect(got.withLock { $0 } == numbers?.first)
        }
    }
}
