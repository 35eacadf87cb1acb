import Testing

@testable import GrantFleet

@Suite struct ARenewal {
    @Test("comes a fifth of a lease after the one before, within a minute, and soon after a failure")
    func pause() {
        let pauses = [5, 15, 60, 3600].map { FleetAgent.pause(ofLease: $0, hasFailed: false) }
        #expect(pauses == [1, 3, 12, 60])
        #expect([5, 15, 60, 3600].map { FleetAgent.pause(ofLease: $0, hasFailed: true) } == [1, 3, 5, 5])
    }
}
