import Testing

@testable import GrantCommandSupport

@Suite struct JSONReaderTests {
    @Test("The JSON reader rejects a text with more values than its limit")
    func bound() throws {
        let reader = try #require(JSONReader())
        let ones = { (count: Int) in Array(("[" + Array(repeating: "1", count: count).joined(separator: ",") + "]").utf8) }
        #expect(reader.read(ones(10), most: 11) != nil)
        #expect(reader.read(ones(11), most: 11) == nil)
        #expect(reader.read(ones(2_000_000)) == nil)
        #expect(reader.read(Array(#"{"a":{"b":[1,2]},"c":"}"#.utf8), most: 3) == nil)
    }

    @Test("The JSON reader does not count separators inside strings as values")
    func strings() throws {
        let reader = try #require(JSONReader())
        #expect(reader.read(Array(#"{"path":"/a,b,[c],{d},\",,\\"}"#.utf8), most: 2) != nil)
    }
}
