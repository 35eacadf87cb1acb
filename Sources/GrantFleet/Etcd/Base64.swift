/// Base64 (RFC 4648, with padding), the encoding of keys and values in etcd's gateway.
enum Base64 {
    private static let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let values: [UInt8?] = {
        var values = [UInt8?](repeating: nil, count: 256)
        for (value, digit) in digits.enumerated() { values[Int(digit)] = UInt8(value) }
        return values
    }()

    static func text(_ bytes: [UInt8]) -> String {
        var result: [UInt8] = []
        result.reserveCapacity((bytes.count + 2) / 3 * 4)
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let word = group.enumerated().reduce(UInt32(0)) { $0 | UInt32($1.element) << (16 - 8 * UInt32($1.offset)) }
            for place in 0..<4 {
                result.append(place <= group.count ? digits[Int(word >> (18 - 6 * UInt32(place)) & 63)] : UInt8(ascii: "="))
            }
        }
        return String(decoding: result, as: UTF8.self)
    }

    /// Returns nil if invalid.
    static func bytes(_ text: String) -> [UInt8]? {
        let digits = Array(text.utf8)
        guard digits.count % 4 == 0 else { return nil }
        var result: [UInt8] = []
        for start in stride(from: 0, to: digits.count, by: 4) {
            let group = digits[start..<start + 4]
            let isLast = start + 4 == digits.count
            let padding = isLast ? group.reversed().prefix { $0 == UInt8(ascii: "=") }.count : 0
            guard padding <= 2 else { return nil }
            var word: UInt32 = 0
            for digit in group.dropLast(padding) {
                guard let value = values[Int(digit)] else { return nil }
                word = word << 6 | UInt32(value)
            }
            word <<= 6 * UInt32(padding)
            for place in 0..<(3 - padding) { result.append(UInt8(truncatingIfNeeded: word >> (16 - 8 * UInt32(place)))) }
        }
        return result
    }
}
