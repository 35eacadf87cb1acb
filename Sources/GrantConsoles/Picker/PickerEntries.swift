import GrantAdministration
import GrantSystem
import GrantTerminal

/// One row in the list of directories.
public struct PickerEntry: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        case directory
        /// A symbolic link that leads to a directory.
        case link
        /// A symbolic link whose target is unknown: not looked up yet, or its filesystem does not answer.
        case unknownLink
        /// The listed directory itself.
        case here
        case above
    }

    public let name: [UInt8]
    public let kind: Kind
    /// The key for sorting and filtering.
    let key: String

    init(_ name: [UInt8], _ kind: Kind) {
        (self.name, self.kind) = (name, kind)
        key = String(decoding: name, as: UTF8.self).lowercased()
    }

    var isHidden: Bool { name.first == UInt8(ascii: ".") }
}

/// The sorted entries of a directory. Made on a background thread, because that may take a moment.
public struct PickerEntries: Sendable {
    let path: [UInt8]
    let all: [PickerEntry]

    /// `links` are those that lead to directories, or nil if they are unknown.
    public init(_ listing: DirectoryListing, links: [[UInt8]]?) {
        path = listing.path
        let found =
            listing.directories.map { PickerEntry($0, .directory) }
            + (links ?? listing.links).map { PickerEntry($0, links == nil ? .unknownLink : .link) }
        all = found.sorted { $0.key == $1.key ? $0.name.lexicographicallyPrecedes($1.name) : $0.key < $1.key }
    }

    /// The indices in `all` of the visible entries. Hidden ones are included if the filter begins with a dot.
    /// `narrowing`: the result for a shorter filter.
    func places(filter: String, hidden: Bool, narrowing before: [Int]? = nil) -> [Int] {
        let words = filter.lowercased()
        let showsHidden = hidden || words.first == "."
        return (before ?? Array(all.indices)).filter { index in
            (showsHidden || !all[index].isHidden) && (words.isEmpty || TextSearch.does(all[index].key, contain: words))
        }
    }
}
