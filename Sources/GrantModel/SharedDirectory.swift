/// The name of a filesystem that hosts mount wherever they like.
public enum FilesystemName: Hashable, Sendable, CustomStringConvertible {
    /// `UUID=` and the hexadecimal digits of 1 to 16 bytes. Dashes and case do not count.
    case uuid([UInt8])
    /// The source of a network mount as /proc/self/mountinfo has it: `server:/export`.
    case source(String)

    /// Parses the name of a filesystem. The result is nil for other text, and for the name of a
    /// device, which differs between hosts.
    public init?(_ text: String) {
        if text.hasPrefix("UUID=") {
            guard let bytes = FilesystemName.bytes(text.dropFirst(5)), bytes.contains(where: { $0 != 0 }) else { return nil }
            self = .uuid(bytes)
            return
        }
        guard !text.isEmpty, !text.hasPrefix("/"), text.utf8.count < 4096, !text.utf8.contains(0) else { return nil }
        self = .source(text)
    }

    public var description: String {
        switch self {
        case .source(let text): return text
        case .uuid(let bytes):
            // As tools show it: dashes before these bytes of 16, or of 4.
            let dashed = bytes.count == 16 ? [4, 6, 8, 10] : bytes.count == 4 ? [2] : []
            return "UUID=" + bytes.enumerated().map { (dashed.contains($0.offset) ? "-" : "") + Hexadecimal.text([$0.element]) }.joined()
        }
    }

    private static func bytes(_ text: Substring) -> [UInt8]? {
        let given = text.utf8.filter { $0 != UInt8(ascii: "-") }
        let digits = given.compactMap { Hexadecimal.value(of: $0) }
        guard digits.count == given.count, digits.count % 2 == 0, (2...32).contains(digits.count) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

/// A directory of a filesystem that several hosts have, wherever they mount it.
public struct SharedDirectory: Hashable, Sendable, CustomStringConvertible {
    public let filesystem: FilesystemName
    /// From the filesystem's root on: absolute, canonical.
    public let path: String
    /// The directory's identity when it was granted, which the filesystem reports to every host, or
    /// nil if no host could look it up.
    public var identity: FileIdentity?

    public init(filesystem: FilesystemName, path: String, identity: FileIdentity? = nil) {
        (self.filesystem, self.path, self.identity) = (filesystem, path, identity)
    }

    /// For people.
    public var description: String { "\(path) of \(filesystem)" }
}

extension FileIdentity {
    /// Whether both can be one directory: what both know is the same.
    public func agrees(with other: FileIdentity) -> Bool {
        func agrees<Value: Equatable>(_ one: Value?, _ two: Value?) -> Bool {
            guard let one, let two else { return true }
            return one == two
        }
        return inode == other.inode && agrees(generation, other.generation) && agrees(birthTime, other.birthTime)
    }
}
