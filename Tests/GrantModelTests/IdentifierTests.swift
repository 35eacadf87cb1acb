import GrantModel
import Testing

@Test func anIdentifierReadsWhatItPrints() throws {
    let id = GrantID.random()
    #expect(GrantID(id.description) == id)
    #expect(GrantID("abc") == nil)
}
