import GrantCoordinator
import Foundation
import Synchronization
import Testing

@Suite struct AGate {
    @Test("The gate admits every permitted operation and names the refusal of others")
    func verdicts() throws {
        let coordinator = Coordinator(slotCount: 4)
        let open = try #require(coordinator.makeScope(refusing: .none))
        let narrow = try #require(coordinator.makeScope(refusing: .readOnly))
        for entry in [Entry.read, .write, .cacheWrite] {
            #expect(coordinator.enter(open, for: entry, slot: 0) == .enter)
            coordinator.leave(slot: 0)
        }
        #expect(coordinator.enter(narrow, for: .read, slot: 1) == .enter)
        coordinator.leave(slot: 1)
        #expect(coordinator.enter(narrow, for: .write, slot: 1) == .readOnly)
        #expect(coordinator.enter(narrow, for: .cacheWrite, slot: 1) == .readOnly)
        coordinator.close(open, .flushing)
        #expect(coordinator.enter(open, for: .read, slot: 0) == .revoked)
        #expect(coordinator.enter(open, for: .write, slot: 0) == .revoked)
        #expect(coordinator.enter(open, for: .cacheWrite, slot: 0) == .enter)
        coordinator.leave(slot: 0)
        coordinator.close(open, .shut)
        #expect(coordinator.enter(open, for: .cacheWrite, slot: 0) == .revoked)
        #expect(coordinator.occupants(of: open).isEmpty)
    }

    @Test("An offered gate is shut until it is admitted, and after a withdrawal")
    func offers() throws {
        let coordinator = Coordinator(slotCount: 2)
        let allowed = try #require(coordinator.makeScope(refusing: .offered))
        let revoked = try #require(coordinator.makeScope(refusing: .offered))
        let narrow = try #require(coordinator.makeScope(refusing: .offered))
        for entry in [Entry.read, .write, .cacheWrite, .closing] {
            #expect(coordinator.enter(allowed, for: entry, slot: 0) == .revoked)
        }
        coordinator.setClaimed(allowed, true)
        coordinator.setCongested(allowed, true)
        coordinator.widen(allowed)
        #expect(coordinator.isOffered(allowed) && coordinator.enter(allowed, for: .read, slot: 0) == .revoked)
        coordinator.setCongested(allowed, false)
        #expect(coordinator.admit(allowed, refusing: .none))
        #expect(coordinator.enter(allowed, for: .write, slot: 0) == .claimed)
        coordinator.leave(slot: 0)
        #expect(!coordinator.isOffered(allowed) && !coordinator.admit(allowed, refusing: .none))
        coordinator.endOffer(revoked)
        coordinator.close(revoked, .flushing)
        #expect(!coordinator.admit(revoked, refusing: .none))
        #expect(coordinator.enter(revoked, for: .read, slot: 0) == .revoked)
        #expect(coordinator.admit(narrow, refusing: .readOnly))
        #expect(coordinator.enter(narrow, for: .read, slot: 0) == .enter)
        coordinator.leave(slot: 0)
        #expect(coordinator.enter(narrow, for: .write, slot: 0) == .readOnly)
    }

    @Test("The gate sends reads and writes to held claims, and admits a close")
    func claims() throws {
        let coordinator = Coordinator(slotCount: 2)
        let scope = try #require(coordinator.makeScope(refusing: .readOnly))
        coordinator.setClaimed(scope, true)
        #expect(coordinator.enter(scope, for: .read, slot: 0) == .claimed)
        // It is inside while it looks at the claims.
        #expect(coordinator.occupants(of: scope).count == 1)
        coordinator.leave(slot: 0)
        #expect(coordinator.enter(scope, for: .write, slot: 0) == .readOnly)
        #expect(coordinator.enter(scope, for: .closing, slot: 0) == .enter)
        coordinator.widen(scope)
        #expect(coordinator.enter(scope, for: .write, slot: 1) == .claimed)
        #expect(coordinator.enter(scope, for: .cacheWrite, slot: 1) == .enter)
        coordinator.setClaimed(scope, false)
        #expect(coordinator.enter(scope, for: .write, slot: 1) == .enter)
        coordinator.setClaimed(scope, true)
        coordinator.close(scope, .shut)
        #expect(coordinator.enter(scope, for: .read, slot: 1) == .revoked)
        #expect(coordinator.enter(scope, for: .closing, slot: 1) == .revoked)
    }

    @Test("The gate of a congested scope sends permitted entries to look for room")
    func crowds() throws {
        let coordinator = Coordinator(slotCount: 2)
        let scope = try #require(coordinator.makeScope(refusing: .none))
        coordinator.setCongested(scope, true)
        for entry in [Entry.read, .write, .cacheWrite, .closing] {
            #expect(coordinator.enter(scope, for: entry, slot: 0) == .congested)
            var inside: [Int] = []
            coordinator.forEachInside(upTo: 2) { slot, _ in inside.append(slot) }
            #expect(inside == [0])
            coordinator.leave(slot: 0)
        }
        #expect(coordinator.forceEnter(scope, slot: 1))
        coordinator.leave(slot: 1)
        coordinator.setClaimed(scope, true)
        #expect(coordinator.enter(scope, for: .read, slot: 0) == .congested)
        coordinator.leave(slot: 0)
        // Congestion does not count as a refusal: a refused entry does not see it.
        #expect(coordinator.gate(scope).pointee.refused == .claimed)
        coordinator.close(scope, .readOnly)
        #expect(coordinator.enter(scope, for: .write, slot: 0) == .readOnly)
        coordinator.widen(scope)
        coordinator.setClaimed(scope, false)
        #expect(coordinator.enter(scope, for: .write, slot: 0) == .congested)
        coordinator.leave(slot: 0)
        coordinator.close(scope, .shut)
        #expect(coordinator.enter(scope, for: .closing, slot: 0) == .revoked)
        coordinator.setCongested(scope, false)
        #expect(coordinator.enter(scope, for: .read, slot: 0) == .revoked)
    }

    @Test("The gate counts admitted operations for each scope")
    func counts() throws {
        let coordinator = Coordinator(slotCount: 3)
        // More than a worker has room for at once.
        let scopes = try (0..<100).map { _ in try #require(coordinator.makeScope(refusing: .readOnly)) }
        let turns = 2_000
        let isOver = Atomic<Bool>(false)
        DispatchQueue.concurrentPerform(iterations: 3) { slot in
            if slot == 2 {
                // A count never exceeds the final one, except for entries that just change hands.
                while !isOver.load(ordering: .relaxed) { #expect(coordinator.counts(of: scopes[7]).operations <= UInt64(4 * turns)) }
                return
            }
            for turn in 0..<turns {
                for scope in scopes where turn % 20 == 0 || scope == scopes[7] {
                    guard coordinator.enter(scope, for: .read, slot: slot) == .enter else { continue }
                    coordinator.count(read: 3, in: scope, slot: slot)
                    coordinator.count(written: 5, in: scope, slot: slot)
                    coordinator.leave(slot: slot)
                    if coordinator.enter(scope, for: .write, slot: slot) == .enter { coordinator.leave(slot: slot) }
                }
            }
            if slot == 0 { isOver.store(true, ordering: .relaxed) }
        }
        for (place, scope) in scopes.enumerated() {
            let operations = UInt64(2 * (place == 7 ? turns : turns / 20))
            #expect(
                coordinator.counts(of: scope)
                    == ScopeCounts(operations: operations, readBytes: 3 * operations, writtenBytes: 5 * operations))
        }
    }

    @Test("A narrowed gate can be widened, a revoked gate cannot")
    func widening() throws {
        let coordinator = Coordinator(slotCount: 1)
        let scope = try #require(coordinator.makeScope(refusing: .readOnly))
        coordinator.widen(scope)
        #expect(coordinator.enter(scope, for: .write, slot: 0) == .enter)
        coordinator.leave(slot: 0)
        coordinator.close(scope, .shut)
        coordinator.widen(scope)
        #expect(coordinator.enter(scope, for: .read, slot: 0) == .revoked)
    }

    @Test("The gate reports the occupants of a scope and the end of each visit")
    func visits() throws {
        let coordinator = Coordinator(slotCount: 3)
        let (one, other) = (try #require(coordinator.makeScope(refusing: .none)), try #require(coordinator.makeScope(refusing: .none)))
        #expect(coordinator.enter(one, for: .write, slot: 0) == .enter)
        #expect(coordinator.enter(other, for: .read, slot: 1) == .enter)
        #expect(coordinator.enter(one, for: .cacheWrite, slot: 2) == .enter)
        let visits = coordinator.occupants(of: one)
        #expect(visits.map(\.slot) == [0, 2])
        #expect(visits.map(\.entry) == [.write, .cacheWrite])
        coordinator.leave(slot: 0)
        // The same worker in the same scope again is another visit.
        #expect(coordinator.enter(one, for: .write, slot: 0) == .enter)
        #expect(!coordinator.isInside(visits[0]))
        #expect(coordinator.isInside(visits[1]))
    }

    @Test("Scope IDs are never used twice")
    func ids() throws {
        let coordinator = Coordinator(slotCount: 1)
        var seen: Set<ScopeID> = []
        for _ in 0..<5_000 { #expect(seen.insert(try #require(coordinator.makeScope(refusing: .none))).inserted) }
    }

    /// Litmus test of the protocol: of a worker that enters and a revoker that closes, at least one
    /// sees the other. With a weaker store than sequential consistency a release build fails
    /// thousands of times. A debug build has too much code between the two accesses.
    @Test("A worker and a revocation never miss each other")
    func litmus() throws {
        let rounds = 200_000
        // Each round needs both threads: where others have the processors, as many rounds as there are in this time.
        let end = Date().addingTimeInterval(20)
        let coordinator = Coordinator(slotCount: 1)
        let scopes = try (0..<rounds).map { _ in try #require(coordinator.makeScope(refusing: .none)) }
        let state = State()
        let worker = Thread {
            for round in 0..<rounds {
                Self.spin(until: { state.round.load(ordering: .acquiring) > round })
                if state.isOver.load(ordering: .acquiring) { return }
                let verdict = coordinator.enter(scopes[round], for: .read, slot: 0)
                state.entered.store(verdict == .enter, ordering: .relaxed)
                state.worker.store(round + 1, ordering: .releasing)
                Self.spin(until: { state.revoker.load(ordering: .acquiring) > round })
                coordinator.leave(slot: 0)
            }
        }
        worker.start()
        var leaks = 0
        for round in 0..<rounds {
            if round % 1_000 == 999, Date() > end { state.isOver.store(true, ordering: .releasing) }
            state.round.store(round + 1, ordering: .releasing)
            if state.isOver.load(ordering: .relaxed) { break }
            // From a little before to a little after the worker: the moment itself is somewhere between.
            for _ in 0..<(round % 64) { _ = state.worker.load(ordering: .relaxed) }
            coordinator.close(scopes[round], .shut)
            let isSeen = !coordinator.occupants(of: scopes[round]).isEmpty
            Self.spin(until: { state.worker.load(ordering: .acquiring) > round })
            if state.entered.load(ordering: .relaxed), !isSeen { leaks += 1 }
            state.revoker.store(round + 1, ordering: .releasing)
        }
        #expect(leaks == 0)
    }

    /// Until it is so, without giving the processor away unless the other thread seems to have none.
    private static func spin(until isSo: () -> Bool) {
        var turns = 0
        while !isSo() {
            turns += 1
            if turns > 20_000 { sched_yield() }
        }
    }

    final class State: Sendable {
        let isOver = Atomic<Bool>(false)
        let round = Atomic<Int>(0)
        let worker = Atomic<Int>(0)
        let revoker = Atomic<Int>(0)
        let entered = Atomic<Bool>(false)
    }
}
