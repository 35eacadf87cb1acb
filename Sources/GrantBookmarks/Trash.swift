/// The directories to which desktops move deleted files.
///
/// See the freedesktop.org Trash specification.
public enum Trash {
    /// Whether a canonical path is inside a Trash. The Trash itself is not.
    ///
    /// A Trash is `…/.local/share/Trash/files/…`, `…/.Trash-UID/files/…` or `…/.Trash/UID/…`.
    public static func holds(_ path: [UInt8]) -> Bool {
        // A quick check first, because it is made for thousands of directories.
        guard isMentioned(in: path) else { return false }
        let names = path.split(separator: 0x2F)
        return names.indices.contains { index in
            let rest = names[index...]
            let depth = home(rest) ?? shared(rest) ?? own(rest)
            return depth.map { rest.count > $0 } ?? false
        }
    }

    /// Whether any of the names can occur in the path.
    private static func isMentioned(in path: [UInt8]) -> Bool {
        path.withUnsafeBufferPointer { bytes in
            let (T, r, a, s, h) = (UInt8(ascii: "T"), UInt8(ascii: "r"), UInt8(ascii: "a"), UInt8(ascii: "s"), UInt8(ascii: "h"))
            return bytes.indices.dropLast(4).contains { index in
                bytes[index] == T && bytes[index + 1] == r && bytes[index + 2] == a && bytes[index + 3] == s && bytes[index + 4] == h
            }
        }
    }

    private static func home(_ names: ArraySlice<ArraySlice<UInt8>>) -> Int? {
        let place = [".local", "share", "Trash", "files"].map { Array($0.utf8)[...] }
        return names.starts(with: place) ? place.count : nil
    }

    /// `.Trash/UID`, shared at the top of a volume, made by its administrator.
    private static func shared(_ names: ArraySlice<ArraySlice<UInt8>>) -> Int? {
        guard names.count >= 2, names.first?.elementsEqual(".Trash".utf8) == true, isNumber(names[names.startIndex + 1]) else { return nil }
        return 2
    }

    /// `.Trash-UID/files`, used if there is no shared one.
    private static func own(_ names: ArraySlice<ArraySlice<UInt8>>) -> Int? {
        let prefix = Array(".Trash-".utf8)
        guard names.count >= 2, let first = names.first, first.starts(with: prefix), isNumber(first.dropFirst(prefix.count)),
            names[names.startIndex + 1].elementsEqual("files".utf8)
        else { return nil }
        return 2
    }

    private static func isNumber(_ digits: ArraySlice<UInt8>) -> Bool {
        !digits.isEmpty && digits.allSatisfy { (0x30...0x39).contains($0) }
    }
}
