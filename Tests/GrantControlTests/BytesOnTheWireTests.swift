import Foundation
import GrantModel
import Testing

@testable import GrantControl

/// The bytes of the samples as they have been since a release: a daemon of one release and a command of another understand each other.
///
/// `GRANTFS_RECORD_MESSAGES=1` adds lines for new samples and changes no existing line: different
/// bytes are a mistake.
@Suite struct BytesOnTheWire {
    private static let path = URL(fileURLWithPath: #filePath).appendingPathComponent("../../Fixtures/messages.txt").standardized.path

    /// By the sample's name, as `ControlRequest.apply.2`: the second of that case.
    private static func recorded() throws -> [(name: String, bytes: [UInt8])] {
        try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").map { line in
            let words = line.split(separator: " ")
            let digits = Array(words.count > 1 ? words[1] : "")
            return (
                String(words[0]), stride(from: 0, to: digits.count - 1, by: 2).compactMap { UInt8(String(digits[$0...$0 + 1]), radix: 16) }
            )
        }
    }

    private static func samples<Message: Sampled>(of type: Message.Type) throws -> [(name: String, message: any Sampled)] {
        var numbers: [String: Int] = [:]
        return try type.samples().map { message in
            let name = "\(type).\(message.name.rawValue)"
            numbers[name, default: 0] += 1
            return ("\(name).\(numbers[name] ?? 0)", message)
        }
    }

    private static func isRead<Message: Sampled>(_ bytes: [UInt8], as message: Message) throws -> Bool {
        try Message.decode(bytes) == message
    }

    private static func namesWithoutSample<Message: Sampled>(of type: Message.Type) throws -> [String] {
        let sampled = Set(try type.samples().map(\.name.rawValue))
        return type.Name.allCases.map(\.rawValue).filter { !sampled.contains($0) }
    }

    @Test("Every case of a control message has a sample")
    func everyCaseHasASample() throws {
        for type in sampledMessages { #expect(try Self.namesWithoutSample(of: type) == [], "\(type)") }
    }

    /// The numbers of the table, and those of the samples.
    private static func numbers<Message: Sampled>(of type: Message.Type) throws -> (table: [UInt8], samples: Set<UInt8>) {
        (type.cases.map(\.number), Set(try type.samples().map { $0.encoded[1] }))
    }

    @Test("Every number of a control message is unique and has a sample")
    func everyNumberIsGivenOnceAndHasASample() throws {
        for type in sampledMessages {
            let (table, samples) = try Self.numbers(of: type)
            #expect(Set(table) == samples && Set(table).count == table.count && !table.contains(0), "\(type)")
        }
    }

    @Test("The bytes of the control messages equal those of earlier releases")
    func areTheOnesOfTheReleasesBefore() throws {
        let samples = try sampledMessages.flatMap { try Self.samples(of: $0) }
        if ProcessInfo.processInfo.environment["GRANTFS_RECORD_MESSAGES"] != nil {
            let known = Set(try Self.recorded().map(\.name))
            let new = samples.filter { !known.contains($0.name) }.map { sample in
                "\(sample.name) \(sample.message.encoded.map { String(format: "%02x", $0) }.joined())\n"
            }
            try (String(contentsOfFile: Self.path, encoding: .utf8) + new.joined()).write(
                toFile: Self.path, atomically: true, encoding: .utf8)
        }
        let recorded = Dictionary(try Self.recorded().map { ($0.name, $0.bytes) }, uniquingKeysWith: { first, _ in first })
        #expect(Set(recorded.keys) == Set(samples.map(\.name)))
        for (name, message) in samples {
            let bytes = try #require(recorded[name], "\(name) has no bytes on record")
            #expect(message.encoded == bytes, "\(name) is written otherwise")
            #expect(try Self.isRead(bytes, as: message), "\(name) is read otherwise")
        }
    }

    /// The number of properties of each record type in the samples, and the number of its fields on
    /// the wire.
    private static func countRecords(in value: Any, into counts: inout [String: (properties: Int, fields: Int)]) {
        if let record = value as? any WireRecord { count(record, into: &counts) }
        for child in Mirror(reflecting: value).children { countRecords(in: child.value, into: &counts) }
    }

    private static func count<Record: WireRecord>(_ record: Record, into counts: inout [String: (properties: Int, fields: Int)]) {
        counts["\(Record.self)"] = (Mirror(reflecting: record).children.count, Record.fields.count)
    }

    @Test("Every property of a wire record is a field")
    func everyPropertyOfARecordIsAField() throws {
        var counts: [String: (properties: Int, fields: Int)] = [:]
        for type in sampledMessages { for sample in try Self.samples(of: type) { Self.countRecords(in: sample.message, into: &counts) } }
        #expect(counts.count >= 20)
        // A number has no fields. Later properties of these are in messages of their own.
        counts["Double"] = nil
        counts["GrantOutcome"]?.properties -= 3
        counts["GrantStatus"]?.properties -= 1
        for (name, count) in counts { #expect(count.properties == count.fields, "\(name)") }
    }
}
