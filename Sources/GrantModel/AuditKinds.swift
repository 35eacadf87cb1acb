/// The kinds of operations that `-o audit` records (`-o audit-of=KIND:KIND…`).
public struct AuditKinds: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Opens for reading, directories included.
    public static let read = AuditKinds(rawValue: 1)
    /// Opens for writing, and truncate(2), which needs no open.
    public static let write = AuditKinds(rawValue: 2)
    /// New files, directories, links and nodes.
    public static let create = AuditKinds(rawValue: 4)
    public static let remove = AuditKinds(rawValue: 8)
    public static let rename = AuditKinds(rawValue: 16)
    /// Owners, modes, times, extended attributes and flags.
    public static let attributes = AuditKinds(rawValue: 32)
    public static let all: AuditKinds = [.read, .write, .create, .remove, .rename, .attributes]

    /// Each kind with its word on the command line.
    public static let words: [(word: String, kind: AuditKinds)] = [
        ("read", .read), ("write", .write), ("create", .create), ("remove", .remove), ("rename", .rename), ("attributes", .attributes),
    ]

    /// Parses words separated by colons. The result is nil if there is none, or one is unknown.
    public init?(words text: String) {
        self = []
        for word in text.split(separator: ":", omittingEmptySubsequences: false) {
            guard let kind = AuditKinds.words.first(where: { $0.word == word })?.kind else { return nil }
            insert(kind)
        }
    }
}
