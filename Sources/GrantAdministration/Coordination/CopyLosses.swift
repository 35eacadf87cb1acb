/// What copies of files lack because the user who makes them has no right to set it: other owners, set-id bits of others' files, and
/// attributes that only root sets.
public struct CopyLosses: Sendable {
    struct Kinds: OptionSet {
        let rawValue: UInt8
        static let owner = Kinds(rawValue: 1)
        static let setID = Kinds(rawValue: 2)
        static let attributes = Kinds(rawValue: 4)
    }

    /// A kind of loss, the number of files with it, and the first of them, as a path that begins with the directory's name.
    public struct Loss: Sendable {
        /// For people.
        public let what: String
        public fileprivate(set) var count: Int
        public let first: [UInt8]
    }

    private var known: [(kind: Kinds, loss: Loss)] = []

    public var isEmpty: Bool { known.isEmpty }

    /// One for each kind, in the order in which they were found.
    public var all: [Loss] { known.map(\.loss) }

    mutating func add(_ kinds: Kinds, at relativePath: [[UInt8]]) {
        if kinds.isEmpty { return }
        for (kind, what) in [
            (Kinds.owner, "owner or group"), (.setID, "set-id bits"), (.attributes, "attributes that only root sets"),
        ] where kinds.contains(kind) {
            if let place = known.firstIndex(where: { $0.kind == kind }) {
                known[place].loss.count += 1
            } else {
                known.append((kind, Loss(what: what, count: 1, first: Array(relativePath.joined(separator: [0x2F])))))
            }
        }
    }
}
