// The standard library decomposes text, and offers it to no other module without this.
@_spi(_Unicode) import Swift

/// The form that all spellings of a name share in a directory that ignores case.
///
/// As Linux does it for ext4 (fs/unicode): decomposed, without code points that are not shown, and
/// without case. It may make more names equal than the filesystem does, but not fewer.
package enum FoldedName {
    /// Whether the byte of a name stays as it is in every name.
    package static func isFolded(_ byte: UInt8) -> Bool { byte < 0x80 && lowercased(byte) == byte }

    package static func of(_ name: UnsafeBufferPointer<UInt8>) -> [UInt8] {
        if name.allSatisfy({ $0 < 0x80 }) { return name.map(lowercased) }
        // Names that are not text have one spelling, except for their ASCII letters on vfat.
        guard let text = String(validating: name, as: UTF8.self) else { return name.map(lowercased) }
        var folded = ""
        for scalar in text._nfd where !scalar.properties.isDefaultIgnorableCodePoint {
            for upper in scalar.properties.uppercaseMapping.unicodeScalars { folded += upper.properties.lowercaseMapping }
        }
        var bytes: [UInt8] = []
        for scalar in folded._nfd where !scalar.properties.isDefaultIgnorableCodePoint { bytes += UTF8.encode(scalar)! }
        return bytes
    }

    static func lowercased(_ byte: UInt8) -> UInt8 { byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte }
}

extension NamePattern {
    /// The pattern for names in their folded form.
    var folded: NamePattern {
        var result = NamePattern(tokens: [], sets: sets.map(\.folded))
        var text: [UInt8] = []
        for token in tokens + [Self.anyBytes] {
            if token < Self.anyByte {
                text.append(UInt8(truncatingIfNeeded: token))
                continue
            }
            result.tokens += text.withUnsafeBufferPointer { FoldedName.of($0) }.map { UInt32(truncatingIfNeeded: $0) }
            result.tokens.append(token)
            text = []
        }
        result.tokens.removeLast()
        return result
    }
}

extension ByteSet {
    /// Contains small letters for both cases. A class with `!` excludes a letter if it excludes one case.
    fileprivate var folded: ByteSet {
        let isInverted = (0...UInt8.max).count(where: contains) > 128
        var result = ByteSet()
        for byte in 0...UInt8.max {
            let upper = byte >= UInt8(ascii: "a") && byte <= UInt8(ascii: "z") ? byte & ~0x20 : byte
            if isInverted ? contains(byte) && contains(upper) : contains(byte) || contains(upper) { result.insert(byte) }
        }
        return result
    }
}
