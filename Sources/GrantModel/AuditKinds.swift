/// What `-o audit` writes down of what programs do (`-o audit-of=KIND:KIND…`).
public struct AuditKinds: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Openings for reading, of directories too.
    public static let read = AuditKinds(rawValue: 1)
    /// Openings for writing, and sizes that are set without one.
    public static let write = AuditKinds(rawValue: 2)
    /// New files, directories, links and nodes.
    public static let create = AuditKinds(rawValue: 4)
    public static let remove = AuditKinds(rawValue: 8)
    public static let rename = AuditKinds(rawValue: 16)
    /// Owners, modes, times, extended attributes and flags.
    public static let attributes = AuditKinds(rawValue: 32)
    public static let all: AuditKinds = [.read, .write, .create, .remove, .rename, .attributes]

    /// Each with the word that it is chosen by.
    public static let words: [(word: String, kind: AuditKinds)] = [
        ("read", .read), ("write", .write), ("create", .create), ("remove", .remove), ("rename", .rename), ("attributes", .attributes),
    ]

    /// Words with colons between. nil when one is unknown, or none is there.
    public init?(words text: String) {
        self = []
        for word in text.split(separator: ":", omittingEmptySubsequences: false) {
            guard let kind = AuditKinds.words.first(where: { $0.word == word })?.kind else { return nil }
            insert(kind)
        }
    }
}
