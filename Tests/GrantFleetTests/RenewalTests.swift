import Testing

@testable import GrantFleet

@Suite struct ARenewal {
    @Test("An agent renews its lease after a fifth of it, at most a minute")
    func pause() {
        let pauses = [5, 15, 60, 3600].map { FleetAgent.pause(ofLease: $0, hasFailed: false) }
        #expect(pauses == [1, 3, 12, 60])
        #expect([5, 15, 60, 3600].map { FleetAgent.pause(ofLease: $0, hasFailed: true) } == [1, 3, 5, 5])
    }
}
