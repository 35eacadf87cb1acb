import Testing
import GrantViewTree

@Suite("Listing habits")
struct TheHabitOfListings {
    private let place: KnownPlace
    init() throws { place = try KnownPlace() }

    /// Whether each of so many listings goes out bare.
    private func listings(_ count: Int) -> [Bool] { (0..<count).map { _ in place.scope.readdirPlus.omitsAttributes() } }
    private func lookUp(_ count: Int) { for _ in 0..<count { place.scope.readdirPlus.recordLookup() } }

    @Test("Listings include attributes only once lookups follow them")
    func begins() {
        #expect(listings(100).allSatisfy { $0 })
        lookUp(15)
        #expect(listings(100).allSatisfy { $0 })
        lookUp(1)
        #expect(listings(31).allSatisfy { !$0 })
    }

    @Test("Listings are probed now and then and stop including unused attributes")
    func ends() {
        _ = listings(1)
        lookUp(16)
        for _ in 0..<3 {
            // Each trial is followed by a lookup, so the habit stays.
            #expect(listings(32).firstIndex(of: true) == 31)
            lookUp(1)
        }
        // The trial after an unused one ends it.
        #expect(listings(32).firstIndex(of: true) == 31)
        #expect(listings(32).firstIndex(of: true) == 31)
        #expect(listings(40).allSatisfy { $0 })
    }
}
