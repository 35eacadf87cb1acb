/// SipHash-2-4, a keyed hash of 64 bits. It cannot be computed without the key, so it detects
/// forgery as well as damage.
package struct SipHash: Sendable {
    private let key0: UInt64
    private let key1: UInt64

    package init(key0: UInt64, key1: UInt64) {
        self.key0 = key0
        self.key1 = key1
    }

    /// Takes a key of 16 bytes. The result is nil for another length.
    package init?(key: [UInt8]) {
        guard key.count == 16 else { return nil }
        self.init(key0: SipHash.word(key[0..<8]), key1: SipHash.word(key[8..<16]))
    }

    package func hash(_ bytes: some Collection<UInt8>) -> UInt64 {
        let all = Array(bytes)
        var state = State(key0: key0, key1: key1)
        var offset = 0
        while offset + 8 <= all.count {
            state.absorb(SipHash.word(all[offset..<offset + 8]))
            offset += 8
        }
        state.absorb(SipHash.word(all[offset...]) | UInt64(truncatingIfNeeded: all.count) << 56)
        return state.finish()
    }

    /// Up to eight bytes, little-endian.
    private static func word(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reversed().reduce(0) { $0 << 8 | UInt64(truncatingIfNeeded: $1) }
    }

    private struct State {
        var v0, v1, v2, v3: UInt64

        init(key0: UInt64, key1: UInt64) {
            v0 = key0 ^ 0x736f_6d65_7073_6575
            v1 = key1 ^ 0x646f_7261_6e64_6f6d
            v2 = key0 ^ 0x6c79_6765_6e65_7261
            v3 = key1 ^ 0x7465_6462_7974_6573
        }

        mutating func absorb(_ word: UInt64) {
            v3 ^= word
            round()
            round()
            v0 ^= word
        }

        mutating func finish() -> UInt64 {
            v2 ^= 0xff
            for _ in 0..<4 { round() }
            return v0 ^ v1 ^ v2 ^ v3
        }

        private mutating func round() {
            v0 = v0 &+ v1
            v1 = rotate(v1, 13) ^ v0
            v0 = rotate(v0, 32)
            v2 = v2 &+ v3
            v3 = rotate(v3, 16) ^ v2
            v0 = v0 &+ v3
            v3 = rotate(v3, 21) ^ v0
            v2 = v2 &+ v1
            v1 = rotate(v1, 17) ^ v2
            v2 = rotate(v2, 32)
        }

        private func rotate(_ value: UInt64, _ count: UInt64) -> UInt64 { value << count | value >> (64 - count) }
    }
}
