import Coordinator
import Foundation
import Synchronization
import Testing

@Suite struct AGate {
    @Test("lets in what it does not refuse, and says which refusal it is")
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
        #expect(coordinator.visits(in: open).isEmpty)
    }

    @Test("is widened again when it was narrowed, and never when it was revoked")
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

    @Test("tells who is inside, what for, and when exactly that visit has ended")
    func visits() throws {
        let coordinator = Coordinator(slotCount: 3)
        let (one, other) = (try #require(coordinator.makeScope(refusing: .none)), try #require(coordinator.makeScope(refusing: .none)))
        #expect(coordinator.enter(one, for: .write, slot: 0) == .enter)
        #expect(coordinator.enter(other, for: .read, slot: 1) == .enter)
        #expect(coordinator.enter(one, for: .cacheWrite, slot: 2) == .enter)
        let visits = coordinator.visits(in: one)
        #expect(visits.map(\.slot) == [0, 2])
        #expect(visits.map(\.entry) == [.write, .cacheWrite])
        coordinator.leave(slot: 0)
        // The same worker in the same scope again is another visit.
        #expect(coordinator.enter(one, for: .write, slot: 0) == .enter)
        #expect(!coordinator.isInside(visits[0]))
        #expect(coordinator.isInside(visits[1]))
    }

    @Test("ids of scopes are never used twice, over many chunks")
    func ids() throws {
        let coordinator = Coordinator(slotCount: 1)
        var seen: Set<ScopeID> = []
        for _ in 0..<5_000 { #expect(seen.insert(try #require(coordinator.makeScope(refusing: .none))).inserted) }
    }

    /// The litmus test of the protocol: a worker that was let in is seen by the revoker, or it sees the closed gate. With either
    /// of the two stores weaker than sequentially consistent this fails within seconds.
    @Test("nobody is inside unseen once it is closed, whatever the threads do")
    func litmus() throws {
        let coordinator = Coordinator(slotCount: 2)
        for _ in 0..<200 {
            let scope = try #require(coordinator.makeScope(refusing: .none))
            let state = State()
            let threads = (0..<2).map { slot in
                Thread {
                    while coordinator.enter(scope, for: .read, slot: slot) == .enter {
                        if state.confirmed.load(ordering: .acquiring) { state.leaks.wrappingAdd(1, ordering: .relaxed) }
                        coordinator.leave(slot: slot)
                    }
                    state.ended.wrappingAdd(1, ordering: .releasing)
                }
            }
            for thread in threads { thread.start() }
            coordinator.close(scope, .shut)
            var inside = coordinator.visits(in: scope)
            while !inside.isEmpty { inside.removeAll { !coordinator.isInside($0) } }
            state.confirmed.store(true, ordering: .releasing)
            while state.ended.load(ordering: .acquiring) < 2 { usleep(10) }
            #expect(state.leaks.load(ordering: .relaxed) == 0)
        }
    }

    final class State: Sendable {
        let confirmed = Atomic<Bool>(false)
        let leaks = Atomic<Int>(0)
        let ended = Atomic<Int>(0)
    }
}
