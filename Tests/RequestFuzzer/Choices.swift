/// The bytes that decide each choice. libFuzzer supplies them, and learns which of them have an
/// effect, or a seed does. After the last byte every choice is 0.
struct Choices {
    private let bytes: [UInt8]
    private var place = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Bytes from a seed (splitmix64).
    init(seed: UInt64, count: Int) {
        var state = seed
        bytes = (0..<count).map { _ in
            state &+= 0x9E37_79B9_7F4A_7C15
            var x = state
            x = (x ^ x >> 30) &* 0xBF58_476D_1CE4_E5B9
            x = (x ^ x >> 27) &* 0x94D0_49BB_1331_11EB
            return UInt8(truncatingIfNeeded: x ^ x >> 31)
        }
    }

    var isOver: Bool { place >= bytes.count }

    mutating func byte() -> UInt8 {
        guard place < bytes.count else { return 0 }
        defer { place += 1 }
        return bytes[place]
    }

    mutating func below(_ limit: Int) -> Int { limit <= 256 ? Int(byte()) % limit : (Int(byte()) << 8 | Int(byte())) % limit }
    mutating func oneIn(_ count: Int) -> Bool { below(count) == count - 1 }
    mutating func of<Value>(_ values: [Value]) -> Value { values[below(values.count)] }
    mutating func whole() -> UInt64 { (0..<8).reduce(0) { value, _ in value << 8 | UInt64(byte()) } }

    /// A number at a limit or near it, and sometimes an arbitrary one.
    mutating func number() -> UInt64 {
        let ends: [UInt64] = [
            0, 1, 2, 100, 511, 4095, 4096, 65_535, 65_536, 1 << 17, 1 << 20, 1 << 30, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 32,
            1 << 52,
            .max / 2, .max / 2 + 1, .max,
        ]
        switch below(8) {
        case 0: return whole()
        case 1: return of(ends) &- UInt64(below(256))
        case 2: return of(ends) &+ UInt64(below(256))
        default: return of(ends)
        }
    }
}
