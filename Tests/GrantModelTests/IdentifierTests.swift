import GrantModel
import Testing

@Test("A grant ID is read back from its text")
func anIdentifierReadsWhatItPrints() throws {
    let id = GrantID.random()
    #expect(GrantID(id.description) == id)
    #expect(GrantID("abc") == nil)
}
