// Swift's own search is part of its regular expressions, which would be linked into each program.

extension Collection where Element == UInt8 {
    /// Returns the place of the first occurrence of `part`, or nil.
    public func place(ofPart part: some Collection<UInt8>) -> Range<Index>? {
        for start in indices where self[start...].starts(with: part) { return start..<index(start, offsetBy: part.count) }
        return nil
    }

    public func contains(part: some Collection<UInt8>) -> Bool { place(ofPart: part) != nil }
}

extension StringProtocol {
    /// Compares bytes.
    public func contains(part: String) -> Bool { utf8.contains(part: part.utf8) }
}
