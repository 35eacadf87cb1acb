import Foundation
import GrantAdministration

extension NSFileCoordinator {
    /// The purpose of a coordinated read. Names and numbers are Apple's.
    public struct ReadingOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Unknown bits have no effect.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Presenters are not asked to save first.
        public static let withoutChanges = ReadingOptions(rawValue: 1 << 0)
        /// A symbolic link is resolved once, before the claim is made. The accessor gets its
        /// target's URL.
        public static let resolvesSymbolicLink = ReadingOptions(rawValue: 1 << 1)
        /// Reads only names, sizes, times and the like: it conflicts only with accesses that change them or displace the item. There: it
        /// does not download the item first.
        public static let immediatelyAvailableMetadataOnly = ReadingOptions(rawValue: 1 << 2)
        /// The accessor gets a snapshot of the item, while the item is free for writers again. The snapshot is removed when the
        /// accessor returns, unless it was moved elsewhere.
        ///
        /// There: a directory becomes one zip archive. Here: it is a copied tree with modes, times, links and extended attributes. On
        /// filesystems with reflinks the data is shared with the original until one of them changes.
        public static let forUploading = ReadingOptions(rawValue: 1 << 3)
    }

    /// The purpose of a coordinated write. Names and numbers are Apple's.
    public struct WritingOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Unknown bits have no effect.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Deletes the item: presenters are asked to release it, and all others are excluded, readers of metadata too.
        public static let forDeleting = WritingOptions(rawValue: 1 << 0)
        /// Moves the item: all others are excluded. Report the new place with `item(at:didMoveTo:)`.
        public static let forMoving = WritingOptions(rawValue: 1 << 1)
        /// Merges: presenters are asked to save first, so that their changes can be merged.
        public static let forMerging = WritingOptions(rawValue: 1 << 2)
        /// Replaces the item by another one: all others are excluded.
        public static let forReplacing = WritingOptions(rawValue: 1 << 3)
        /// Changes only names, times and the like: it conflicts only with accesses that read or change them, or displace the item.
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

    /// Of several options, the most exclusive counts.
    static func writing(_ path: [UInt8], _ options: NSFileCoordinator.WritingOptions) -> CoordinatedAccess {
        let intents: [(NSFileCoordinator.WritingOptions, Intent)] = [
            (.forDeleting, .deleting), (.forMoving, .moving), (.forReplacing, .replacing), (.forMerging, .merging),
            (.contentIndependentMetadataOnly, .metadata),
        ]
        return .writing(path, intents.first { options.contains($0.0) }?.1 ?? .content)
    }
}
