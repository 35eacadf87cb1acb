import GrantAdministration
import GrantSystem
import GrantTerminal

/// One row of the list of directories.
public struct PickerEntry: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        case directory
        /// A symbolic link that leads to a directory.
        case link
        /// A symbolic link that leads to where nobody has looked yet, or nobody answers.
        case unknownLink
        /// The directory that is listed.
        case here
        case above
    }

    public let name: [UInt8]
    public let kind: Kind
    /// What is sorted and searched by.
    let key: String

    init(_ name: [UInt8], _ kind: Kind) {
        (self.name, self.kind) = (name, kind)
        key = String(decoding: name, as: UTF8.self).lowercased()
    }

    var isHidden: Bool { name.first == UInt8(ascii: ".") }
}

/// What a directory shows, in its order. Made where it may take a moment.
public struct PickerEntries: Sendable {
    let path: [UInt8]
    let all: [PickerEntry]

    /// `links`: those that lead to directories; nil when that is not known.
    public init(_ listing: DirectoryListing, links: [[UInt8]]?) {
        path = listing.path
        let found =
            listing.directories.map { PickerEntry($0, .directory) }
            + (links ?? listing.links).map { PickerEntry($0, links == nil ? .unknownLink : .link) }
        all = found.sorted { $0.key == $1.key ? $0.name.lexicographicallyPrecedes($1.name) : $0.key < $1.key }
    }

    /// The places in `all` of what is to be seen. Hidden ones are, too, once a filter asks for a point at the start.
    /// `narrowing`: what a shorter form of the filter has found.
    func places(filter: String, hidden: Bool, narrowing before: [Int]? = nil) -> [Int] {
        let words = filter.lowercased()
        let showsHidden = hidden || words.first == "."
        return (before ?? Array(all.indices)).filter { index in
            (showsHidden || !all[index].isHidden) && (words.isEmpty || TextSearch.does(all[index].key, contain: words))
        }
    }
}
