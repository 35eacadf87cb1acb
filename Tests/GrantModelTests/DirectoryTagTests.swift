import GrantModel
import Testing

@Suite struct ATag {
    @Test("A bookmark tag is read back from its text")
    func readsAsItWasWritten() {
        let tag = DirectoryTag.random()
        #expect(tag.bytes.count == 16)
        #expect(DirectoryTag(attributeValue: Array(tag.description.utf8)) == tag)
        #expect(DirectoryTag(bytes: tag.bytes) == tag)
        #expect(DirectoryTag.random() != tag)
    }

    @Test("A malformed bookmark tag is refused")
    func isNothingElse() {
        for text in ["", "0", String(repeating: "0", count: 31), String(repeating: "0", count: 33), String(repeating: "x", count: 32)] {
            #expect(DirectoryTag(attributeValue: Array(text.utf8)) == nil)
        }
        #expect(DirectoryTag(attributeValue: Array(repeating: 0xFF, count: 32)) == nil)
        #expect(DirectoryTag(bytes: Array(repeating: 0, count: 15)) == nil)
    }
}
