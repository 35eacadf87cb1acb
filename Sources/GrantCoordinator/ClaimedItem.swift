/// Identifies a file or directory by three numbers that its owner guarantees to be unique.
public struct ItemID: Hashable, Sendable {
    public let (first, second): (UInt64, UInt64)
    public let third: Int64

    public init(_ first: UInt64, _ second: UInt64, _ third: Int64) {
        (self.first, self.second) = (first, second)
        self.third = third
    }
}

/// A name in a directory, whether an entry exists or not.
public struct ItemPlace: Hashable, Sendable {
    public let directory: ItemID
    public let name: [UInt8]

    public init(directory: ItemID, name: [UInt8]) {
        self.directory = directory
        self.name = name
    }
}

/// The subject of a claim: a file, or a directory tree.
///
/// It is matched by identity and by place. Identity follows a rename. Place follows a replacement,
/// which is how most programs save: a new file under the claimed name.
public struct ClaimedItem: Equatable, Sendable {
    /// The file at the place when it was claimed, and the file there now.
    ///
    /// It is empty if there is no file yet.
    public var identities: [ItemID]
    /// It is nil for the granted directory itself, which has no name inside the grant.
    public var place: ItemPlace?
    /// All parent directories, in any order.
    public var ancestors: [ItemID]
    /// Whether it is certainly no directory, so that nothing lies in it.
    public var isNoDirectory: Bool

    public init(identities: [ItemID], place: ItemPlace?, ancestors: [ItemID], isNoDirectory: Bool = false) {
        self.identities = identities
        self.place = place
        self.ancestors = ancestors
        self.isNoDirectory = isNoDirectory
    }

    /// Whether the two are the same, or one lies below the other.
    public func overlaps(_ other: ClaimedItem) -> Bool {
        if let place, place == other.place { return true }
        for identity in identities where other.identities.contains(identity) || other.ancestors.contains(identity) { return true }
        for identity in other.identities where ancestors.contains(identity) { return true }
        return false
    }
}

/// How a claim or an operation uses an item.
public enum ItemUse: UInt8, Sendable, CaseIterable {
    case readContent = 1
    case readMetadata
    case writeContent
    case writeMetadata
    /// Removes, moves or replaces it: excludes every other use.
    case displace

    public var isReading: Bool { self == .readContent || self == .readMetadata }
    private var isMetadata: Bool { self == .readMetadata || self == .writeMetadata }

    /// Whether this use excludes another: readers share, a writer excludes.
    ///
    /// A metadata use conflicts only with metadata uses and with `displace`.
    public func excludes(_ other: ItemUse) -> Bool {
        if isReading && other.isReading { return false }
        if self == .displace || other == .displace { return true }
        return isMetadata == other.isMetadata
    }
}

/// An item and its use.
public struct ItemAccess: Equatable, Sendable {
    public var item: ClaimedItem
    public var use: ItemUse

    public init(_ item: ClaimedItem, _ use: ItemUse) {
        self.item = item
        self.use = use
    }

    public func conflicts(with other: ItemAccess) -> Bool { use.excludes(other.use) && item.overlaps(other.item) }
}
