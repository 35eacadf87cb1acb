import GrantModel
import TestSupport
import Testing

@testable import GrantControl

@Suite struct CodingTests {
    private static func encodedSamples<Message: Sampled>(of type: Message.Type) throws -> [[UInt8]] { try type.samples().map(\.encoded) }

    @Test("A truncated control message is refused")
    func everyShorterMessageIsRefused() throws {
        for type in sampledMessages {
            for message in try Self.encodedSamples(of: type) {
                for count in 0..<message.count { #expect(throws: CodingFlaw.self) { try type.decode(Array(message.prefix(count))) } }
            }
        }
    }

    @Test("A control message with trailing bytes is refused")
    func whatFollowsAMessageIsRefused() throws {
        for type in sampledMessages {
            for message in try Self.encodedSamples(of: type) { #expect(throws: CodingFlaw.hasMore) { try type.decode(message + [0]) } }
        }
    }

    @Test("A control message of another version is refused as such")
    func anotherVersionIsNamed() {
        for type in sampledMessages { #expect(throws: CodingFlaw.otherVersion) { try type.decode([2, 3]) } }
    }

    @Test("A control message of an unknown kind is refused as such")
    func anotherKindIsNamed() {
        for type in sampledMessages {
            for kind: UInt8 in [0, 99, .max] { #expect(throws: CodingFlaw.unknownKind) { try type.decode([1, kind]) } }
        }
    }

    /// A count of four thousand million items in a message of ten bytes costs neither memory nor time.
    @Test("A control message with a false count is refused")
    func aCountThatIsOnlyClaimedIsRefused() {
        #expect(throws: CodingFlaw.endsEarly) { try ControlRequest.decode([1, 1, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF]) }
        #expect(throws: CodingFlaw.endsEarly) { try ControlReply.decode([1, 3, 0xFF, 0xFF, 0xFF, 0xFF, 0x61]) }
        #expect(throws: CodingFlaw.endsEarly) { try SessionNews.decode([1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF]) }
    }

    @Test("A control message with an invalid value is refused")
    func aValueThatCannotBeIsRefused() throws {
        let (flag, name): ([UInt8], [UInt8]) = ([0, 0, 0, 0, 0, 0, 0, 1, 2], [0, 0, 0, 1, 0x2F])
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode([1, 7, 2, 0, 0, 0, 0]) }
        #expect(throws: CodingFlaw.badValue) { try SessionRequest.decode([1, 7] + flag) }
        #expect(throws: CodingFlaw.badValue) { try SessionRequest.decode([1, 4, 2]) }
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode([1, 3, 0, 0, 0, 1, 0xFF]) }
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode([1, 2, 0, 0, 0, 0]) }
        #expect(throws: CodingFlaw.badValue) { try SessionNews.decode([1, 1] + [0, 0, 0, 0, 0, 0, 0, 1] + [0, 0, 0, 1, 9]) }
        let status = try #require(try ControlReply.samples().first { $0.name == .status && $0.encoded[1] == 9 }).encoded
        // The last bytes are a means for each grant: too few, none that is known, and one that is none.
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode(status.dropLast(6) + [0, 0, 0, 1, 2]) }
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode(status.dropLast(2) + [255, 255]) }
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode(status.dropLast(2) + [4, 255]) }
        let denial = try #require(try ControlReply.samples().first { $0.name == .metrics }).encoded
        let place = try #require(denial.indices.last { denial[$0...].starts(with: [0, 0, 0, 1, 0xFE]) })
        #expect(throws: CodingFlaw.badValue) { try ControlReply.decode(denial[..<place] + name + denial[(place + 5)...]) }
    }

    /// Random bytes, and real messages with some bytes changed: decoding never traps, and accepted
    /// messages encode to the same bytes.
    @Test("Random control messages never trap, and decoded ones have a stable encoding")
    func noInputTraps() throws {
        var random = SplitMix(seed: 42)
        for type in sampledMessages {
            let seeds = try Self.encodedSamples(of: type)
            for round in 0..<50_000 {
                var bytes: [UInt8]
                if round % 2 == 0 {
                    bytes = (0..<Int.random(in: 0...80, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
                    if bytes.count > 1 { (bytes[0], bytes[1]) = (1, bytes[1] % 17) }
                } else {
                    bytes = seeds.randomElement(using: &random) ?? []
                    for _ in 0..<Int.random(in: 1...4, using: &random) where !bytes.isEmpty {
                        bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
                    }
                }
                try Self.expectTheSameAgain(bytes, as: type)
            }
        }
    }

    private static func expectTheSameAgain<Message: Sampled>(_ bytes: [UInt8], as _: Message.Type) throws {
        guard let message = try? Message.decode(bytes) else { return }
        let again = message.encoded
        if again == bytes { return }
        // Some kinds contain values that have a shorter form, or that are corrected as they are
        // read.
        let isHandover = Message.self == HandoverMessage.self && [1, 4].contains(bytes[1])
        let isWhole = Message.self == ControlReply.self && [8, 10, 11].contains(bytes[1])
        #expect(isHandover || isWhole, "\(bytes) is written otherwise")
        #expect(try Message.decode(again).encoded == again)
    }
}
