import Testing

@testable import GrantViewFS

@Suite struct NodeValuesTests {
    @Test("Values of forgotten nodes are dropped before the table outgrows its bound")
    func forgotten() {
        var values = NodeValues<UInt32>()
        // Each node is forgotten when the next one comes, but for ten.
        for node in 0..<100_000 as Range<UInt64> {
            values.update(node, in: 1, default: 0, isKnown: { $0 == node || $0 < 10 }) { $0 += 1 }
            #expect(values.count <= NodeValues<UInt32>.leastLimit + 1)
        }
        for node in 0..<10 as Range<UInt64> { #expect(values[node, in: 1] == 1) }
        #expect(values[50_000, in: 1] == nil)
    }

    @Test("Values of known nodes stay at any number of nodes")
    func known() {
        var values = NodeValues<UInt32>()
        for node in 0..<10_000 as Range<UInt64> {
            values.update(node, in: UInt32(node % 3), default: 0, isKnown: { _ in true }) { $0 = UInt32(node) }
        }
        #expect(values.count == 10_000 && values.all.count == 10_000)
        #expect(values[9_999, in: 0] == 9_999 && values[9_999, in: 1] == nil)
        values.remove(0)
        #expect(values.count == 6_666 && values[9_999, in: 0] == nil)
    }
}
