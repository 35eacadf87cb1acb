/// What an application may do with a document, as the permission store has it.
struct Permissions: OptionSet, Sendable, Hashable {
    let rawValue: UInt8

    static let read = Permissions(rawValue: 1)
    static let write = Permissions(rawValue: 2)
    /// To give others what it has itself.
    static let grant = Permissions(rawValue: 4)
    /// To have the document forgotten.
    static let delete = Permissions(rawValue: 8)
    static let all: Permissions = [.read, .write, .grant, .delete]

    private static let words: [(Permissions, String)] = [
        (.read, "read"), (.write, "write"), (.grant, "grant-permissions"), (.delete, "delete"),
    ]

    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// InvalidArgument for a word that is none.
    init(asked words: [String]) throws(PortalError) {
        self = []
        for word in words {
            guard let known = Permissions.words.first(where: { $0.1 == word }) else {
                throw PortalError(.invalidArgument, "No such permission")
            }
            insert(known.0)
        }
    }

    /// Words that mean nothing here are passed over.
    init(stored words: [String]) { self = Permissions(Permissions.words.filter { words.contains($0.1) }.map(\.0)) }

    var words: [String] { Permissions.words.filter { contains($0.0) }.map(\.1) }
}
