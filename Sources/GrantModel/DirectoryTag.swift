/// A tag of 128 random bits, by which a copy of a directory is recognised after it was restored
/// from a backup. It is stored in the bookmark and in an extended attribute of the directory. It is
/// not secret and proves nothing: any process with write access to a directory can set it.
public struct DirectoryTag: Hashable, Sendable, CustomStringConvertible {
    /// The name of the attribute.
    public static let attribute = "user.grantfs.tag"

    /// Always 16 bytes.
    public let bytes: [UInt8]

    /// The result is nil unless there are 16 bytes.
    public init?(bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self.bytes = bytes
    }

    private init(_ id: GrantID) {
        bytes = [id.high, id.low].flatMap { word in withUnsafeBytes(of: word.bigEndian) { Array($0) } }
    }

    /// Makes a new tag from the system's random source.
    public static func random() -> DirectoryTag { DirectoryTag(GrantID.random()) }

    /// Parses the value of the attribute: exactly 32 hexadecimal digits, or nil for anything else.
    public init?(attributeValue value: [UInt8]) {
        guard let text = String(validating: value, as: UTF8.self), let id = GrantID(text) else { return nil }
        self.init(id)
    }

    /// The value of the attribute: 32 lower-case hexadecimal digits.
    public var description: String { Hexadecimal.text(bytes) }
}
