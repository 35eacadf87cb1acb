/// What a copy of a directory is recognised by after it was restored from a backup: 128 random bits, kept in the bookmark and in
/// an extended attribute of the directory. It is no secret and proves nothing: whoever may write to a directory can put it there.
public struct DirectoryTag: Hashable, Sendable, CustomStringConvertible {
    /// The name of the attribute.
    public static let attribute = "user.grantfs.tag"

    /// 16 of them.
    public let bytes: [UInt8]

    /// nil unless there are 16.
    public init?(bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self.bytes = bytes
    }

    private init(_ id: GrantID) {
        bytes = [id.high, id.low].flatMap { word in withUnsafeBytes(of: word.bigEndian) { Array($0) } }
    }

    /// A fresh one from the system's random source.
    public static func random() -> DirectoryTag { DirectoryTag(GrantID.random()) }

    /// Reads the value of the attribute: exactly 32 hexadecimal digits; anything else is nil.
    public init?(attributeValue value: [UInt8]) {
        guard let text = String(validating: value, as: UTF8.self), let id = GrantID(text) else { return nil }
        self.init(id)
    }

    /// 32 lower-case hexadecimal digits: the value of the attribute.
    public var description: String { Hexadecimal.text(bytes) }
}
