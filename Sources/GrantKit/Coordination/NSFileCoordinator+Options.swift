import Foundation
import GrantAdministration

extension NSFileCoordinator {
    /// What a coordinated reading is for. The names and numbers are Apple's.
    public struct ReadingOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Bits that have no name here change nothing.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Presenters are not asked to save first.
        public static let withoutChanges = ReadingOptions(rawValue: 1 << 0)
        /// A link is followed once, before the claim is made; the accessor gets the URL of what it leads to.
        public static let resolvesSymbolicLink = ReadingOptions(rawValue: 1 << 1)
        /// Names, sizes, times and the like: it meets only who changes those, or displaces the item. There: it does not download the item first.
        public static let immediatelyAvailableMetadataOnly = ReadingOptions(rawValue: 1 << 2)
        /// The accessor gets a snapshot of the item, which goes when the accessor returns unless it has been moved elsewhere; the item is free for writers again
        /// while the accessor works on it.
        ///
        /// There: a directory is handed over as one zip archive. Here it is a copied tree, of files and directories as they are: modes, times, links, extended
        /// attributes. On filesystems that can the data is shared with the original until one of them changes.
        public static let forUploading = ReadingOptions(rawValue: 1 << 3)
    }

    /// What a coordinated writing is for. The names and numbers are Apple's.
    public struct WritingOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Bits that have no name here change nothing.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Presenters are asked to make way for the item's end. Everybody else is excluded, readers of metadata too.
        public static let forDeleting = WritingOptions(rawValue: 1 << 0)
        /// Everybody else is excluded. Tell where it went with `item(at:didMoveTo:)`.
        public static let forMoving = WritingOptions(rawValue: 1 << 1)
        /// Presenters are asked to save first, so that what they have is there to be merged.
        public static let forMerging = WritingOptions(rawValue: 1 << 2)
        /// Another item takes its place: everybody else is excluded.
        public static let forReplacing = WritingOptions(rawValue: 1 << 3)
        /// Names, times and the like: it meets only who reads or changes those, or displaces the item.
        public static let contentIndependentMetadataOnly = WritingOptions(rawValue: 1 << 4)
    }
}

extension CoordinatedAccess {
    static func reading(_ path: [UInt8], _ options: NSFileCoordinator.ReadingOptions) -> CoordinatedAccess {
        let isMetadata = options.contains(.immediatelyAvailableMetadataOnly)
        return .reading(
            path, isMetadata ? .metadata : options.contains(.forUploading) ? .uploading : .content,
            savesFirst: !isMetadata && !options.contains(.withoutChanges), followsLink: options.contains(.resolvesSymbolicLink))
    }

    /// Of several options the one that excludes the most counts.
    static func writing(_ path: [UInt8], _ options: NSFileCoordinator.WritingOptions) -> CoordinatedAccess {
        let intents: [(NSFileCoordinator.WritingOptions, Intent)] = [
            (.forDeleting, .deleting), (.forMoving, .moving), (.forReplacing, .replacing), (.forMerging, .merging),
            (.contentIndependentMetadataOnly, .metadata),
        ]
        return .writing(path, intents.first { options.contains($0.0) }?.1 ?? .content)
    }
}
