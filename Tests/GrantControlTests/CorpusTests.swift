import Foundation
import TestSupport
import Testing

/// What the fuzzer has found to be worth keeping: `.ci/fuzz` looks for more.
@Suite struct TheFuzzersCorpus {
    @Test("The fuzzer's control messages are decoded or refused without failure")
    func isReadOrRefusedAndGivesTheSameBytesAgain() throws {
        let corpus = URL(fileURLWithPath: #filePath).appendingPathComponent("../../DecoderFuzzer/Corpus").standardized.path
        let count = try FileManager.default.contentsOfDirectory(atPath: corpus).count
        #expect(count > 100)
        #expect(try Command.run([Programs.decoderFuzzer, corpus]).orThrow().trimmed == "\(count)")
    }
}
